"""torch's scaled_dot_product_attention: softmax over everyone, causal, or any pattern written out as a mask."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from ..cost import TRANSCENDENTAL, Cost
from ..neighbors import Tile
from ..position import toeplitz_block
from ..transforms import forward_mode_active, functorch_active
from .base import Call, Strategy, no_pairs


class Fused(Strategy):
    name = "fused"
    groups = True
    narrow = True

    def accepts(self, problem):
        if problem.similarity.kind != "dot":
            return f"{problem.similarity.name} is not an exponential of a dot product"
        if problem.dropout:
            return "its dropout cannot be drawn again elsewhere, so results would depend on the strategy"
        return no_pairs(problem)

    def cost(self, problem):
        pairs = problem.rows * problem.queries * problem.keys
        causal = _plainly_causal(problem.neighbors, problem.queries, problem.keys)
        masked = not (problem.neighbors.complete or causal) or problem.position is not None
        pairs *= 0.5 if causal and not masked else 1
        mask = _mask_size(problem) if masked else 0
        # A mask that wants a gradient makes torch write out all scores.
        written = 4 * pairs * problem.item if problem.position and problem.position.learned else 0
        return Cost(
            pairs * (2 * problem.dim + 2 * problem.value_dim + TRANSCENDENTAL),
            problem.tensor_bytes + mask * (2 + 2 * problem.item) + written,
            mask * (1 + problem.item) + written,
            1 + 8 * masked,
        )

    def backward_cost(self, problem):
        return self.cost(problem).times(2.5, memory=1)

    def run(self, call):
        query, key, value, scale = _scaled(call)
        facts = call.neighbors.facts(call.queries, call.keys)
        causal = call.position is None and _plainly_causal(facts, call.queries, call.keys)
        mask = None if causal or (facts.complete and call.position is None) else _mask(call)
        grouped = key.shape[-3] != call.heads

        def sdpa(q, k, v, *m):
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=m[0] if m else None, is_causal=causal, scale=scale, enable_gqa=grouped
            )

        return differentiable_twice(sdpa, query, key, value, *(() if mask is None else (mask,)))


def _plainly_causal(facts, queries: int, keys: int) -> bool:
    return facts.interval is not None and tuple(facts.interval) == (0, float("inf")) and queries == keys


def _mask_size(problem) -> int:
    return problem.queries * problem.keys * (problem.heads if problem.position else 1)


def _scaled(call: Call):
    """A tensor scale is multiplied into the query, since torch takes numbers only."""
    scale = call.similarity.resolved(call.query.shape[-1])
    if isinstance(scale, Tensor):
        query, key = call.similarity.prepare(call.query, call.key)
        return query.to(call.query.dtype), key, call.value, 1.0
    return call.query, call.key, call.value, scale


def _mask(call: Call) -> Tensor:
    """The pattern and position as one mask: boolean, or added to the scores, (heads or 1, N, M)."""
    tile = Tile.whole(call.queries, call.keys, call.query.device)
    allowed, table = call.neighbors.mask(tile), call.table()
    if table is None:
        return allowed
    bias = toeplitz_block(table, tile.rows, tile.columns, call.keys)
    return bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)


def differentiable_twice(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """function(*tensors), which torch can differentiate once, with the composite form standing in from then on."""
    if torch.compiler.is_compiling():
        return function(*tensors)
    if functorch_active() or forward_mode_active():
        with _composite():
            return function(*tensors)
    if not torch.is_grad_enabled() or not any(x.requires_grad for x in tensors):
        return function(*tensors)
    return _OnceFast.apply(function, *tensors)


def _composite():
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)


class _OnceFast(torch.autograd.Function):
    """Runs the fused kernel and its fused backward; a backward that must itself be differentiated runs the composite."""

    @staticmethod
    def forward(ctx, function, *tensors):
        ctx.function = function
        ctx.save_for_backward(*tensors)
        with torch.enable_grad():
            ctx.inside = [x.detach().requires_grad_(x.requires_grad) for x in tensors]
            ctx.out = function(*ctx.inside)
        return ctx.out.detach()

    @staticmethod
    def backward(ctx, gradient):
        wanted = [place for place, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        if torch.is_grad_enabled():
            inputs = ctx.saved_tensors
            with _composite():
                out = ctx.function(*inputs)
            found = torch.autograd.grad(
                out, [inputs[place] for place in wanted], gradient, create_graph=True, allow_unused=True
            )
        else:
            inside = [ctx.inside[place] for place in wanted]
            found = torch.autograd.grad(ctx.out, inside, gradient, retain_graph=True, allow_unused=True)
        gradients = [None] * len(ctx.needs_input_grad)
        for place, entry in zip(wanted, found, strict=True):
            gradients[place + 1] = entry
        return tuple(gradients)
