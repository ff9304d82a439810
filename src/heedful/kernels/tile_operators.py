"""Pairs by tiles as an operator, which `torch.compile` takes whole: of intervals. Eager calls go past it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from . import tiles
from .folding import fold_copies, or_empty, unset, wanted
from .tiles import Pairs


@torch.library.custom_op("heedful::tile_attention", mutates_args=())
def tile_attention(
    q: Tensor, k: Tensor, v: Tensor, constants: Tensor | None, table: Tensor | None, seed: Tensor | None,
    kind: str, degree: int, slope: float, scale: float, low: int, high: int, dropout: float, heads: int,
    training: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(out, what was taken out of the exponents, 1 / z or 0); out is wide in training."""
    q, k, v = (x.contiguous() for x in (q, k, v))
    pairs = Pairs(kind, degree, slope, scale, low, high, dropout=dropout, heads=heads)
    return tiles.listen(q, k, v, constants, table, seed, pairs, torch.float32 if training else q.dtype)


@tile_attention.register_fake
def _(q, k, v, constants, table, seed, kind, degree, slope, scale, low, high, dropout, heads, training):
    shape = (*q.shape[:2], v.shape[2])
    out = q.new_empty(shape, dtype=torch.float32 if training else q.dtype)
    tops, inverses = (q.new_empty(shape[:2], dtype=torch.float32) for _ in range(2))
    return out, tops, inverses


@torch.library.custom_op("heedful::tile_attention_backward", mutates_args=())
def tile_attention_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, constants: Tensor | None, table: Tensor | None,
    seed: Tensor | None, out: Tensor, tops: Tensor, inverses: Tensor, kind: str, degree: int, slope: float,
    scale: float, low: int, high: int, dropout: float, heads: int, needs: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of (q, k, v, table), those not needed empty."""
    q, k, v = (x.contiguous() for x in (q, k, v))
    pairs = Pairs(kind, degree, slope, scale, low, high, dropout=dropout, heads=heads)
    *felt, dtable = tiles.gradients(
        needs, q, k, v, constants, table, seed, pairs, out, tops, inverses, gradient
    )
    return or_empty((*felt, dtable if dtable is None else dtable.contiguous()), (q, k, v, q))


@tile_attention_backward.register_fake
def _(gradient, q, k, v, constants, table, seed, out, tops, inverses, kind, *rest):
    needs = [needed and (kind != "uniform" or n >= 2) for n, needed in enumerate(rest[-1])]
    return unset((q, k, v, table if needs[3] else q), needs)


def _keep(ctx, inputs, output):
    ctx.settings = inputs[6:14]
    ctx.save_for_backward(*inputs[:6], *output)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _back(ctx, gradient, *_):
    if gradient is None:
        return (None,) * 15
    needs = [*ctx.needs_input_grad[:3], ctx.needs_input_grad[4]]
    if ctx.settings[0] == "uniform":
        needs[:2] = False, False
    found = tile_attention_backward(gradient, *ctx.saved_tensors, *ctx.settings, needs)
    *felt, dtable = wanted(found, needs)
    return *felt, None, dtable, *(None,) * 10


tile_attention.register_autograd(_back, setup_context=_keep)
# Rows are numbered through all copies, so each would drop others; and a table's gradient has no batch.
for _operator in (tile_attention, tile_attention_backward):
    fold_copies(
        _operator,
        constant=("table", "seed"),
        alone=lambda given: given["dropout"] > 0 or any(given.get("needs", ())[3:]),
    )


@register_flop_formula(torch.ops.heedful.tile_attention)
def _(q, k, v, constants, table, seed, kind, *rest, out_shape=None, **options) -> int:
    return _products(q, k, v, kind) * (q[2] + v[2])


@register_flop_formula(torch.ops.heedful.tile_attention_backward)
def _(gradient, q, k, v, constants, table, seed, out, tops, inverses, kind, *rest, out_shape=None, **options):
    """The scores once more, and two products for each of theirs and of the values'."""
    return _products(q, k, v, kind) * (3 * q[2] + 2 * v[2])


def _products(q, k, v, kind: str) -> int:
    """Two for each pair, as torch counts its own attention: of any pattern."""
    return 2 * q[0] * q[1] * k[1]
