"""Feature kernels and quadratic ones as operators, which `torch.compile` takes whole.

Eager calls go past them, for they know shorter ways and derivatives of any order. Here every tensor but those
of a map has the batch first, which is all that vmap must know.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from . import feature_maps, quadratic
from .feature_maps import Map, Passes
from .folding import fold_copies, or_empty, unset, wanted


@torch.library.custom_op("heedful::feature_attention", mutates_args=())
def feature_attention(
    q: Tensor, k: Tensor, v: Tensor, kind: str, features: int, directions: Tensor | None,
    taken: Tensor | None, half: float, rates: Tensor | None, causal: bool, training: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """(out, den, tops, heard); what the backward pass has no use for is empty. Out is wide in training."""
    q, k, v = _contiguous(q, k, v)
    passes = Passes(Map(kind, features, directions, taken, half), rates, causal, q, v)
    out, den, tops, heard = feature_maps.listen(passes, q, k, v, training)
    if kind != "exponential":  # den again
        tops = den[:, :0].clone()
    return out, den, tops, q.new_empty(len(q), 0, 0) if heard is None else heard


@feature_attention.register_fake
def _(q, k, v, kind, features, directions, taken, half, rates, causal, training):
    (batch, length, d), e = q.shape, v.shape[2]
    shape = feature_maps.shape_of(int(d), int(e), Map(kind, features), q.element_size())
    numbers = q.new_empty((batch, length), dtype=torch.float32)
    return (
        q.new_empty((batch, length, e), dtype=torch.float32 if training else q.dtype),
        numbers,
        torch.empty_like(numbers) if kind == "exponential" else numbers.new_empty((batch, 0)),
        q.new_empty((batch, 0, 0)) if causal else numbers.new_empty((batch, 1, shape.state)),
    )


@torch.library.custom_op("heedful::feature_attention_backward", mutates_args=())
def feature_attention_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, den: Tensor, tops: Tensor, heard: Tensor,
    kind: str, features: int, directions: Tensor | None, taken: Tensor | None, half: float,
    rates: Tensor | None, causal: bool, needs: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of (q, k, v), those not needed empty."""
    q, k, v = _contiguous(q, k, v)
    passes = Passes(Map(kind, features, directions, taken, half), rates, causal, q, v)
    kept = out, den, tops if kind == "exponential" else den, None if causal else heard
    found = feature_maps.gradients(passes, needs, q, k, v, *kept, gradient)
    return or_empty(found, (q, k, v))


@feature_attention_backward.register_fake
def _(
    gradient, q, k, v, out, den, tops, heard, kind, features, directions, taken, half, rates, causal, needs
):
    return unset((q, k, v), needs)


@torch.library.custom_op("heedful::quadratic_attention", mutates_args=())
def quadratic_attention(q: Tensor, k: Tensor, v: Tensor, c: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """(out, den), both wide."""
    q, k, v, c = _contiguous(q, k, v, c)
    return quadratic.listen(q, k, v, c, causal)


@quadratic_attention.register_fake
def _(q, k, v, c, causal):
    batch, length, _ = q.shape
    wide = q.new_empty((batch, length, v.shape[2]), dtype=torch.float32)
    return wide, wide.new_empty((batch, length))


@torch.library.custom_op("heedful::quadratic_attention_backward", mutates_args=())
def quadratic_attention_backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, c: Tensor, out: Tensor, den: Tensor, causal: bool,
    needs: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    q, k, v, c = _contiguous(q, k, v, c)
    return or_empty(quadratic.gradients(needs, q, k, v, c, out, den, gradient, causal), (q, k, v))


@quadratic_attention_backward.register_fake
def _(gradient, q, k, v, c, out, den, causal, needs):
    return unset((q, k, v), needs)


@torch.library.custom_op("heedful::feature_step", mutates_args=())
def feature_step(
    q: Tensor, k: Tensor, v: Tensor, kind: str, features: int, directions: Tensor | None,
    taken: Tensor | None, half: float, state: Tensor | None, keep: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(out, state after); it passes no gradients."""
    return feature_maps.feature_step(q, k, v, Map(kind, features, directions, taken, half), state, keep)


@feature_step.register_fake
def _(q, k, v, kind, features, directions, taken, half, state, keep):
    (batch, e) = v.shape
    return v.new_empty((batch, e)), v.new_empty((batch, features, e + 1), dtype=torch.float32)


def _contiguous(*tensors: Tensor) -> list[Tensor]:
    return [x.contiguous() for x in tensors]


# Gradients


def _keep(ctx, inputs, output):
    tensors = [x for x in inputs if x is None or isinstance(x, Tensor)]
    ctx.settings = [x for x in inputs if x is not None and not isinstance(x, Tensor)]
    ctx.save_for_backward(*tensors, *output)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _back_through_features(ctx, gradient, *_):
    if gradient is None:
        return (None,) * 11
    q, k, v, directions, taken, rates, *kept = ctx.saved_tensors
    kind, features, half, causal, _ = ctx.settings
    needs = list(ctx.needs_input_grad[:3])
    found = feature_attention_backward(
        gradient, q, k, v, *kept, kind, features, directions, taken, half, rates, causal, needs
    )
    return *wanted(found, needs), *(None,) * 8


def _back_through_squares(ctx, gradient, *_):
    if gradient is None:
        return (None,) * 5
    needs = list(ctx.needs_input_grad[:3])
    found = quadratic_attention_backward(gradient, *ctx.saved_tensors, *ctx.settings, needs)
    return *wanted(found, needs), None, None


feature_attention.register_autograd(_back_through_features, setup_context=_keep)
quadratic_attention.register_autograd(_back_through_squares, setup_context=_keep)


# vmap: copies are more of a batch


for _operator in (
    feature_attention,
    feature_attention_backward,
    quadratic_attention,
    quadratic_attention_backward,
    feature_step,
):
    fold_copies(_operator, constant=("directions", "taken"))


# FLOPs: two for each product of a feature and a number said, once to add up and once to listen


def _multiply_adds(q, k, features: int, width: int) -> int:
    return q[0] * (q[1] + k[1]) * 2 * features * (width + 1)


@register_flop_formula(torch.ops.heedful.feature_attention)
def _(q, k, v, kind, features, *rest, out_shape=None, **options) -> int:
    return _multiply_adds(q, k, features, v[2])


@register_flop_formula(torch.ops.heedful.feature_attention_backward)
def _(gradient, q, k, v, out, den, tops, heard, kind, features, *rest, out_shape=None, **options) -> int:
    return 2 * _multiply_adds(q, k, features, v[2])


@register_flop_formula(torch.ops.heedful.quadratic_attention)
def _(q, k, v, *rest, out_shape=None, **options) -> int:
    return _multiply_adds(q, k, q[2] ** 2, v[2])


@register_flop_formula(torch.ops.heedful.quadratic_attention_backward)
def _(gradient, q, k, v, *rest, out_shape=None, **options) -> int:
    return 2 * _multiply_adds(q, k, q[2] ** 2, v[2])
