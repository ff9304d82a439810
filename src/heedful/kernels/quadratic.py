"""Attention with (q·k + c)², over everyone or the past, in O(N·d²·e) time and O(N·d) memory, on the GPU.

`quadratic_triton.py` has the passes over positions; here they are put together.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .dividing import divided
from .fitting import launch
from .twice import gradients_again

WIDEST = 128  # features of q and of v a head: their products must fit the registers


def suits(q: Tensor, v: Tensor) -> bool:
    """Whether these are of a type and width the kernels take."""
    return q.dtype in (torch.float32, torch.bfloat16) and max(q.shape[-1], v.shape[-1]) <= WIDEST


def quadratic_attention(q: Tensor, k: Tensor, v: Tensor, c: Tensor, causal: bool) -> Tensor:
    """out_i = Σ_j (q_i·k_j + c_i)² v_j / Σ_j (q_i·k_j + c_i)², 0 where that sum is 0.

    q (B, N, d), k (B, M, d), v (B, M, e), c (B, N) in float32; causal means j ≤ i, for N = M.
    """
    return _Quadratic.apply(q.contiguous(), k.contiguous(), v.contiguous(), c.contiguous(), causal)


def composite(q: Tensor, k: Tensor, v: Tensor, c: Tensor, causal: bool) -> Tensor:
    """The same by all pairs: any derivative of any order."""
    weights = (q @ k.mT + c[..., None].to(q.dtype)).square()
    if causal:
        weights = weights.tril()
    total = weights.sum(-1, keepdim=True)
    return (weights @ v) / total.masked_fill(total == 0, 1)


class Shape(NamedTuple):
    """What the kernels are compiled for."""

    d: int
    e: int
    wide_d: int  # rounded up to a power of two
    wide_e: int
    columns: int  # a group
    block: int
    warps: int
    stages: int  # of loads under way

    @property
    def features(self) -> int:
        return (self.wide_d + self.columns) * self.wide_d


def shape_of(d: int, e: int, item: int) -> Shape:
    wide_d, wide_e = (max(16, 1 << (n - 1).bit_length()) for n in (d, e))
    group = 128 if item == 2 else 64  # features at once
    columns = max(1, min(wide_d, group // wide_d))
    # With 8 warps products 16 wide come out wrong, or read what is not theirs (Triton 3.6).
    warps = 8 if item == 4 and min(wide_d, wide_e) >= 64 else 4
    stages = 1 if item == 4 and wide_d > 64 else 3  # the widest do not fit the shared memory twice
    return Shape(d, e, wide_d, wide_e, columns, 64, warps, stages)


def span_of(length: int, shape: Shape) -> int:
    """Positions a state stands for, where there is one a span: so many that all states are as large as q.

    Whole blocks: a block hears one state.
    """
    wanted = shape.wide_d**2 * shape.wide_e // (shape.wide_d + shape.wide_e)
    return max(2, min(-(-wanted // shape.block), 4096 // shape.block)) * shape.block


class States(NamedTuple):
    """Σ φ(x) y, Σ c² y, Σ h x xᵀ with Σ c h x below, and Σ c² h, (B, spans, …), in float32."""

    second: Tensor
    zeroth: Tensor
    mass: Tensor
    mass_zeroth: Tensor


def moments(shape: Shape, x: Tensor, y: Tensor, h: Tensor | None, c: Tensor | None, span: int) -> States:
    from . import quadratic_triton as kernels

    batch, length, _ = x.shape
    splits = -(-length // span)
    sizes = ((shape.features, shape.wide_e), (shape.wide_e,), (shape.wide_d + 1, shape.wide_d), ())
    states = States(*(x.new_empty((batch, splits, *size), dtype=torch.float32) for size in sizes))
    given = h is not None
    grid = (shape.wide_d // shape.columns + 1, splits, batch)
    launch(
        kernels.moments,
        lambda block: grid,
        (x, y, h if given else x, c if given else x, *states, length, span, splits),
        GIVEN=given,
        **_options(shape, x),
    )
    return states


def joined(states: States, causal: int) -> States:
    """Of everyone; or of all spans before each (1), after each (2)."""
    if not causal:
        return States(*(t.sum(1, keepdim=True) if t.shape[1] > 1 else t for t in states))
    if causal == 1:
        return States(*(_before(t) for t in states))
    return States(*(_before(t.flip(1)).flip(1) for t in states))


def _before(states: Tensor) -> Tensor:
    """Sums of those before each. Not of all up to it less its own, which would leave what is no number."""
    found = torch.zeros_like(states)
    torch.cumsum(states[:, :-1], 1, out=found[:, 1:])
    return found


def apply(shape, x, c, states, span, causal, other=None, said=None, other_c=None, norm=False):
    from . import quadratic_triton as kernels

    batch, length, _ = x.shape
    # With its norm the result is wanted again, for ⟨g, o⟩, which nearly cancels: it is not rounded.
    out = x.new_empty(batch, length, shape.e, dtype=torch.float32 if norm else x.dtype)
    den = x.new_empty((batch, length) if norm else (0,), dtype=torch.float32)
    more = (x if t is None else t for t in (other, said, other_c))
    launch(
        kernels.apply,
        lambda block: (-(-length // block), batch),
        (x, x if c is None else c, *states, out, den, *more, length, span, states.second.shape[1]),
        GIVEN=c is not None,
        NORM=norm,
        CAUSAL=causal,
        **_options(shape, x),
    )
    return out, den


def pull(shape, x, y, h, c, states, span, causal, other=None, said=None, other_h=None, other_c=None):
    from . import quadratic_triton as kernels

    batch, length, _ = x.shape
    dx = torch.empty_like(x)
    given = (x if t is None else t for t in (h, c))
    more = (x if t is None else t for t in (other, said, other_h, other_c))
    launch(
        kernels.pull,
        lambda block: (-(-length // block), batch),
        (x, y, *given, states.second, states.mass, dx, *more, length, span, states.second.shape[1]),
        GIVEN=h is not None,
        CAUSAL=causal,
        **_options(shape, x),
    )
    return dx


def _options(shape: Shape, x: Tensor) -> dict:
    return {
        "D": shape.d, "E": shape.e, "DP": shape.wide_d, "EP": shape.wide_e, "A": shape.columns,
        "PRECISION": "tf32x3" if x.dtype == torch.float32 else "tf32",
        "block": shape.block, "stages": shape.stages, "num_warps": shape.warps,
    }  # fmt: skip


def _span(length: int, batch: int, shape: Shape, causal: bool) -> int:
    if causal:
        return span_of(length, shape)
    # Enough programs to fill a GPU twice over, few enough that what they leave is soon added up.
    groups = batch * (shape.wide_d // shape.columns + 1)
    splits = max(1, min(64, 1024 // groups, length // (8 * shape.block)))
    return -(-length // splits // shape.block) * shape.block


class _Quadratic(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, c, causal):
        out, den = listen(q, k, v, c, causal)
        ctx.causal = causal
        ctx.save_for_backward(q, k, v, c, out, den)
        ctx.set_materialize_grads(False)
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx, gradient):
        if gradient is None:
            return (None,) * 5
        q, k, v, c, out, den = ctx.saved_tensors
        causal = ctx.causal
        if torch.is_grad_enabled():  # this will be differentiated again

            def run(q, k, v):
                return composite(q, k, v, c, causal)

            found = gradients_again(run, (q, k, v), ctx.needs_input_grad[:3], (gradient,))
            return *found, None, None
        return *gradients(ctx.needs_input_grad, q, k, v, c, out, den, gradient, causal), None, None


def listen(q, k, v, c, causal: bool) -> tuple[Tensor, Tensor]:
    """The result and what it was divided by, in float32."""
    from .sparse_triton import on

    shape = shape_of(q.shape[2], v.shape[2], q.element_size())
    span = _span(k.shape[1], len(k), shape, causal)
    with on(q.device):
        heard = joined(moments(shape, k, v, None, None, span), int(causal))
        more = {"other": k, "said": v, "other_c": c} if causal else {}
        return apply(shape, q, c, heard, span, int(causal), norm=True, **more)


def gradients(needs, q, k, v, c, out, den, gradient, causal):
    """Of q, k and v. With ĝ_i = g_i / z_i and ĥ_i = −⟨ĝ_i, o_i⟩, L changes by s_ij (v_j·ĝ_i + ĥ_i)."""
    from .sparse_triton import on

    shape = shape_of(q.shape[2], v.shape[2], q.element_size())
    g, h = divided(gradient, out, den)
    dq = dk = dv = None
    with on(q.device):
        if needs[0]:
            span = _span(k.shape[1], len(k), shape, causal)
            heard = joined(moments(shape, k, v, None, None, span), int(causal))
            more = {"other": k, "said": v} if causal else {}
            dq = pull(shape, q, g, h, c, heard, span, int(causal), **more)
            del heard
        if needs[1] or needs[2]:
            span, way = _span(q.shape[1], len(q), shape, causal), 2 * int(causal)
            asked = joined(moments(shape, q, g, h, c, span), way)
            if needs[2]:
                # The keys' constant is 1, and their queries' was counted with the moments.
                more = {"other": q, "said": g, "other_c": c} if causal else {}
                dv, _ = apply(shape, k, None, asked, span, way, **more)
            if needs[1]:
                more = {"other": q, "said": g, "other_h": h, "other_c": c} if causal else {}
                dk = pull(shape, k, v, None, None, asked, span, way, **more)
    return dq, dk, dv
