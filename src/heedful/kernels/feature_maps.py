"""Attention with φ(q)·φ(k), over everyone or the past, in O(N·features·e) time, on the GPU.

`feature_maps_triton.py` has the passes over positions, which make φ in registers; here they are put together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from . import sparse_operators
from .compiling import differentiated
from .dividing import divided
from .fitting import launch
from .sparse_operators import unobserved
from .twice import gradients_again

WIDEST = 128  # numbers of a query and of a value: they must fit the registers
MOST_GIVEN = 512  # features that others have made, so that they are stored: wider ones go in pieces
TIMES = 16  # spans whose states are carried on at once
SHORTEST_SPAN = 128  # positions a state stands for, at least
MOST_PROGRAMS = 65_535  # in a launch's second and third direction


class Map(NamedTuple):
    """Which φ: `kind` is given, elu or exponential, as `feature_maps_triton.py` defines them.

    Of an exponential: w (features, d); what is taken from the exponents of keys and given to those of
    queries, (features,); and what |k|² is multiplied by.
    """

    kind: str
    features: int
    directions: Tensor | None = None
    taken: Tensor | None = None
    half: float = 0.0


def suits(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> bool:
    """Whether the kernels take these: on the GPU, eager or compiled, of a usual width and type."""
    if not sparse_operators.on_gpu(q.device):
        return False
    if torch.compiler.is_compiling():
        if differentiated():
            return False
    elif not all(map(unobserved, (q, k, v))):
        return False
    if torch.autograd.forward_ad._current_level >= 0 or not q.numel() or not k.numel() or not v.numel():
        return False
    if q.dtype not in (torch.float32, torch.bfloat16, torch.float16) or v.shape[-1] > WIDEST:
        return False
    if q.shape[:-2].numel() > MOST_PROGRAMS or not all(map(within_reach, (q, k, v))):
        return False
    return not causal or q.shape[-2] == k.shape[-2]


def within_reach(x: Tensor) -> bool:
    """Whether 32 bits number the rows of a sequence and what is in them, and a launch its spans."""
    length, width = x.shape[-2:]
    return length * width < 2**31 and length <= SHORTEST_SPAN * MOST_PROGRAMS


def feature_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: Map,
    *,
    causal: bool,
    again: Callable[[Tensor, Tensor, Tensor], Tensor],
    rates: Tensor | None = None,
) -> Tensor:
    """out_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j), 0 where that sum is 0.

    q (B, N, d), k (B, M, d), v (B, M, e). Causal means j ≤ i, for N = M; there `rates` (B,) in float32 may
    say how fast weights fall with distance. `again(q, k, v)` computes the same in torch: a backward pass that
    is differentiated itself runs it.
    """
    q, k, v = (x.contiguous() for x in (q, k, v))
    rates = None if rates is None else rates.contiguous()
    training = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
    return _FeatureAttention.apply(q, k, v, phi, rates, causal, again, training)


class Shape(NamedTuple):
    """What the kernels are compiled for."""

    d: int
    e: int
    features: int
    wide_d: int  # rounded up to a power of two; 16 where only the features are read
    wide_e: int
    group: int  # features at once
    block: int
    stages: int  # of loads under way

    @property
    def groups(self) -> int:
        return -(-self.features // self.group)

    @property
    def state(self) -> int:
        """Numbers: S, and z behind it."""
        return self.groups * self.group * (self.wide_e + 1)


def shape_of(d: int, e: int, phi: Map, item: int) -> Shape:
    exponential = phi.kind == "exponential"
    wide_d, wide_e = _wide(d) if exponential else 16, _wide(e)
    group = min(32 if wide_d > 64 else 64, _wide(phi.features))
    block = 32 if item == 4 and not exponential else 64
    return Shape(d, e, phi.features, wide_d, wide_e, group, block, 1 if exponential else 2)


def _wide(n: int) -> int:
    return max(16, 1 << (n - 1).bit_length())


def span_of(length: int, batch: int, shape: Shape, causal: bool) -> int:
    """Positions a state stands for."""
    if causal:  # so many that all states together are not much larger than queries, keys and values
        wanted = shape.features * shape.wide_e // (2 * (shape.d + shape.e))
        return max(SHORTEST_SPAN, min(_wide(wanted), 1024))
    # Enough programs to fill a GPU twice over, few enough that what they leave is soon added up.
    splits = max(1, min(64, 1024 // (batch * shape.groups), length // (4 * shape.block)))
    return -(-length // splits // shape.block) * shape.block


class Passes:
    """The kernels with what all of them are told."""

    def __init__(self, phi: Map, rates: Tensor | None, causal: bool, q: Tensor, v: Tensor):
        from . import feature_maps_triton

        self.kernels, self.phi, self.rates, self.causal = feature_maps_triton, phi, rates, causal
        self.shape = shape_of(q.shape[2], v.shape[2], phi, q.element_size())
        self.precision = "tf32x3" if q.dtype == torch.float32 else "tf32"

    def _options(self, *, queries: bool) -> dict:
        shape = self.shape
        return {
            "D": shape.d, "E": shape.e, "F": shape.features, "DP": shape.wide_d, "EP": shape.wide_e,
            "GROUP": shape.group, "KIND": self.phi.kind, "QUERIES": queries, "DECAY": self.rates is not None,
            "PRECISION": self.precision, "block": shape.block, "stages": shape.stages,
            # With 8, products 16 wide came out wrong or read what is not theirs (Triton 3.6).
            "num_warps": 4,
        }  # fmt: skip

    def states(self, x: Tensor, y: Tensor, h: Tensor | None, tops: Tensor | None) -> tuple[Tensor, int]:
        """(B, spans, …) of all positions; over the past, of those before each span (queries: after it)."""
        shape, queries = self.shape, h is not None
        batch, length, _ = x.shape
        span = span_of(length, batch, shape, self.causal)
        splits = -(-length // span)
        states = x.new_empty(batch, splits, shape.state, dtype=torch.float32)
        given = _or(x, h, tops, self.phi.directions, self.phi.taken, self.rates)
        launch(
            self.kernels.moments,
            lambda block: (shape.groups, splits, batch),
            (x, y, *given, states, self.phi.half, length, span, splits),
            **self._options(queries=queries),
        )
        if self.causal:
            block = 128
            self.kernels.carry[(-(-shape.state // block), batch)](
                states, *_or(x, self.rates), shape.state, span, splits,
                BACKWARD=queries, DECAY=self.rates is not None, TIMES=TIMES, BLOCK=block,
            )  # fmt: skip
        elif splits > 1:
            states = states.sum(1, keepdim=True)
        return states, span

    def apply(self, x, states, span, dtype, *, queries, tops=None, other=None, other_tops=None, said=None):
        shape = self.shape
        batch, length, _ = x.shape
        out = x.new_empty(batch, length, shape.e, dtype=dtype)
        den = x.new_empty((batch, length) if queries else (0,), dtype=torch.float32)
        if queries:
            tops = torch.empty_like(den) if self.phi.kind == "exponential" else den
        given = _or(x, tops, other, other_tops, said, self.phi.directions, self.phi.taken, self.rates)
        launch(
            self.kernels.apply,
            lambda block: (-(-length // block), batch),
            (x, *given, states, out, den, self.phi.half, length, span, states.shape[1]),
            GROUPS=shape.groups,
            CAUSAL=self.causal,
            **self._options(queries=queries),
        )
        return out, den, tops

    def pull(
        self, x, y, states, span, *, h=None, tops=None, other=None, said=None, other_h=None, other_tops=None
    ):
        shape, queries = self.shape, h is not None
        batch, length, _ = x.shape
        dx = torch.empty_like(x)
        given = _or(x, h, tops, other, said, other_h, other_tops)
        given += _or(x, self.phi.directions, self.phi.taken, self.rates)
        launch(
            self.kernels.pull,
            lambda block: (-(-length // block), batch),
            (x, y, *given, states, dx, self.phi.half, length, span, states.shape[1]),
            GROUPS=shape.groups,
            CAUSAL=self.causal,
            **self._options(queries=queries),
        )
        return dx


def _or(x: Tensor, *given: Tensor | None) -> list[Tensor]:
    """What is given; x, which a kernel will not read, for what is not."""
    return [x if t is None else t for t in given]


class _FeatureAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, phi, rates, causal, again, training):
        passes = Passes(phi, rates, causal, q, v)
        out, *kept = listen(passes, q, k, v, training)
        if training:
            ctx.passes, ctx.again = passes, again
            ctx.save_for_backward(q, k, v, out, *kept)
            ctx.set_materialize_grads(False)
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx, gradient):
        if gradient is None:
            return (None,) * 8
        q, k, v, out, den, tops, heard = ctx.saved_tensors
        needs = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():  # this will be differentiated again
            found = gradients_again(ctx.again, (q, k, v), needs, (gradient,))
        else:
            found = gradients(ctx.passes, needs, q, k, v, out, den, tops, heard, gradient)
        return *found, None, None, None, None, None


def listen(passes: Passes, q, k, v, training: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """(out, den, tops, what everyone has heard)."""
    from .sparse_triton import on

    # In training the result is wanted again, for ⟨g, o⟩, which nearly cancels: it is not rounded.
    dtype = torch.float32 if training else q.dtype
    with on(q.device):
        heard, span = passes.states(k, v, None, None)
        out, den, tops = passes.apply(q, heard, span, dtype, queries=True, other=k, said=v)
    # Over the past, states are as large as the keys: made again.
    return out, den, tops, None if passes.causal else heard


def gradients(passes: Passes, needs, q, k, v, out, den, tops, heard, gradient):
    """Of q, k and v. With ĝ_i = g_i / z_i and ĥ_i = −⟨ĝ_i, o_i⟩, L changes by s_ij (v_j·ĝ_i + ĥ_i)."""
    from .sparse_triton import on

    g, h = divided(gradient, out, den)
    dq = dk = dv = None
    with on(q.device):
        if needs[0]:
            states, span = passes.states(k, v, None, None) if heard is None else (heard, k.shape[1])
            dq = passes.pull(q, g, states, span, h=h, tops=tops, other=k, said=v)
            del states
        if needs[1] or needs[2]:
            asked, span = passes.states(q, g, h, tops)
            those = {"other": q, "said": g, "other_tops": tops}
            if needs[2]:
                dv, _, _ = passes.apply(k, asked, span, v.dtype, queries=False, **those)
            if needs[1]:
                dk = passes.pull(k, v, asked, span, other_h=h, **those)
    return dq, dk, dv


def feature_step(
    q: Tensor, k: Tensor, v: Tensor, phi: Map, state: Tensor | None, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One new token: S ← keep·S + φ(k) [v, 1]ᵀ in float32, and what the query hears of it, (B, e).

    q, k (B, d), v (B, e); a state is (B, features, e + 1), keep (B,) or all of it. `phi` may also be of kind
    "square".
    """
    from . import feature_maps_triton as kernels
    from .sparse_triton import on

    (batch, d), e, features = q.shape, v.shape[1], phi.features
    part, group = min(64, _wide(e)), min(64, _wide(features))
    out = torch.empty_like(v)
    after = v.new_empty(batch, features, e + 1, dtype=torch.float32)
    with on(q.device):
        kernels.step[(-(-e // part), batch)](
            q.contiguous(), k.contiguous(), v.contiguous(), after if state is None else state.contiguous(),
            *_or(q, None if keep is None else keep.contiguous(), phi.directions, phi.taken),
            after, out, phi.half,
            D=d, E=e, F=features, DP=_wide(d), EP=part, GROUP=group, GROUPS=-(-features // group),
            KIND=phi.kind, FIRST=state is None, KEEP=keep is not None, num_warps=4,
        )  # fmt: skip
    return out, after
