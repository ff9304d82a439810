"""Any pairs by tiles on the GPU: O(pairs) time and O(N) memory, forward and backward, without atomics.

`tiles_triton.py` has the passes; here they are put together. q (B, N, d), k (B, M, d), v (B, M, e), where B
counts batch entries times heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from . import sparse_operators
from .compiling import differentiated
from .dropout import keep_mask, kept_scale, threshold
from .fitting import launch
from .sparse_operators import unobserved
from .twice import gradients_again

WIDEST = 128  # numbers of a query and of a value: they must fit the registers
MOST_ROWS = 65_535  # of programs in a launch's second direction
LONGEST = 2**28  # positions: offsets and places of a row fit 32 bits
GRAIN = 64  # positions a tile of a listing
FAR = 2**29  # further than any offset


class Listing(NamedTuple):
    """Which tiles hold pairs: by listeners, by speakers (where each block's begin; which blocks; which
    tiles), and a bit for each speaker of each row of each tile. Tile 0 is empty.
    """

    by_listener: tuple[Tensor, Tensor, Tensor]
    by_speaker: tuple[Tensor, Tensor, Tensor]
    bits: Tensor

    def grid(self) -> Tensor:
        """Which tile lies where, (down, across); 0 where none does."""
        starts, across, which = self.by_listener
        down = torch.repeat_interleave(starts.diff(), output_size=len(across))
        grid = which.new_zeros(len(starts) - 1, len(self.by_speaker[0]) - 1)
        return grid.index_put_((down, across.long()), which)


class Pairs(NamedTuple):
    """How pairs weigh. `kind` is dot (exp(scale q·k)), power ((q·k + c)^degree), additive (exp(leaky(q + k))
    of single numbers) or uniform; low ≤ i−j ≤ high count, or those of the listing.
    """

    kind: str
    degree: int = 1
    slope: float = 0.0
    scale: float = 1.0
    low: int = -FAR
    high: int = FAR
    listing: Listing | None = None
    dropout: float = 0.0
    heads: int = 1


class Shape(NamedTuple):
    """What a program holds: a block of one side, a step of the other at a time."""

    block: int
    step: int
    warps: int
    stages: int  # of loads under way


def shape_of(wide_d: int, wide_e: int, item: int) -> Shape:
    # With 8 warps, products 16 wide came out wrong or read what is not theirs (Triton 3.6).
    widest = max(wide_d, wide_e)
    step = GRAIN // 2 if item == 4 and widest >= GRAIN else GRAIN  # what fits the registers
    return Shape(GRAIN, step, 4, 1 if item == 4 and widest > 64 else 2)


def suits(q: Tensor, k: Tensor, v: Tensor) -> bool:
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
    return q.shape[:-2].numel() <= MOST_ROWS and max(q.shape[-2], k.shape[-2]) <= LONGEST // WIDEST


def tile_attention(
    q: Tensor, k: Tensor, v: Tensor, pairs: Pairs, *, constants=None, table=None, seed=None
) -> Tensor:
    """out_i = Σ_j w_ij v_j / Σ_j w_ij, 0 where that sum is 0.

    `constants` (B, N) are the c of a power; `table` (heads or 1, N + M − 1) has p_{i−j} at N − 1 + (i − j),
    both in float32. A pair dropped is one that `dropout.keep_mask` says of `seed`.
    """
    return _Tiles.apply(*(x.contiguous() for x in (q, k, v)), constants, table, seed, pairs)


def composite(q, k, v, constants, table, seed, pairs: Pairs) -> Tensor:
    """The same by all pairs at once, in torch: any derivative of any order."""
    queries, keys = q.shape[1], k.shape[1]
    i = torch.arange(queries, device=q.device)[:, None]
    j = torch.arange(keys, device=q.device)
    offset = i + (keys - queries) - j
    allowed = (offset >= pairs.low) & (offset <= pairs.high)
    if pairs.listing is not None:
        allowed = _unlisted(pairs.listing, queries, keys)
    bias = torch.zeros((), device=q.device)
    if table is not None:
        bias = table[:, offset + queries - 1].repeat(len(q) // len(table), 1, 1)
    bias = bias.masked_fill(~allowed, -torch.inf)
    if pairs.kind == "uniform":
        base = q.new_zeros(len(q), queries, keys)
    elif pairs.kind == "additive":
        base = F.leaky_relu(q + k.mT, pairs.slope)
    else:
        base = pairs.scale * (q @ k.mT)
    if pairs.kind == "power":
        base = base if constants is None else base + constants[..., None]
        top = _top(bias)
        weights = base**pairs.degree * torch.exp(bias - top)
    else:
        base = base + bias
        weights = torch.exp(base - _top(base))
    total = weights.sum(-1, keepdim=True)
    if pairs.dropout:
        row = torch.arange(len(q), device=q.device)[:, None, None]
        keep = keep_mask(seed, row, i * keys + j, pairs.dropout)
        weights = weights * keep * kept_scale(pairs.dropout)
    return (weights.to(v.dtype) @ v) / total.masked_fill(total == 0, 1).to(v.dtype)


def _top(x: Tensor) -> Tensor:
    top = x.detach().amax(-1, keepdim=True)
    return top.masked_fill(top == -torch.inf, 0)


def _unlisted(listing: Listing, queries: int, keys: int) -> Tensor:
    bit = torch.arange(GRAIN, device=listing.bits.device)
    tiles = ((listing.bits[listing.grid()][..., None] >> bit) & 1).bool()  # (down, across, GRAIN, GRAIN)
    return tiles.transpose(1, 2).flatten(2).flatten(0, 1)[:queries, :keys]


class Launches:
    """The passes over one problem, and what all of them are told."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, constants, table, seed, pairs: Pairs):
        from . import tiles_triton

        self.kernels, self.pairs = tiles_triton, pairs
        self.rows, self.queries, d = q.shape
        self.keys, e = v.shape[1:]
        compares = pairs.kind in ("dot", "power")
        self.first = (q, k, v, _or(q, constants), _or(q, table))
        self.table, self.seed, self.q, self.v = table, _or(q, seed), q, v
        self.sizes = (
            self.queries, self.keys, pairs.low, pairs.high, pairs.heads,
            table.shape[-1] if table is not None and len(table) > 1 else 0, float(pairs.scale),
        )  # fmt: skip
        wide_d, wide_e = _wide(d) if compares else 1, _wide(e)
        shape = shape_of(wide_d, wide_e, q.element_size())
        self.options: dict[str, Any] = {
            "D": d if pairs.kind != "uniform" else 1, "E": e, "DP": wide_d, "EP": wide_e,
            "KIND": pairs.kind, "DEGREE": pairs.degree, "SLOPE": float(pairs.slope),
            "CONSTANT": constants is not None, "BIASED": table is not None,
            "LISTED": pairs.listing is not None, "DROPPED": pairs.dropout > 0,
            "THRESHOLD": threshold(pairs.dropout), "SCALE": float(kept_scale(pairs.dropout)), "GRAIN": GRAIN,
            "PRECISION": "tf32x3" if q.dtype == torch.float32 else "tf32", "STEP": shape.step,
            "block": shape.block, "stages": shape.stages, "num_warps": shape.warps,
        }  # fmt: skip

    def listed(self, way: tuple[Tensor, Tensor, Tensor] | None) -> tuple[Tensor, ...]:
        if self.pairs.listing is None or way is None:
            return (self.q,) * 4
        return *way, self.pairs.listing.bits

    def forward(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """(out, what was taken out of the exponents, 1 / z or 0)"""
        out = self.q.new_empty(self.rows, self.queries, self.v.shape[2], dtype=dtype)
        tops, inverses = (torch.empty_like(out[..., 0], dtype=torch.float32) for _ in range(2))
        way = self.pairs.listing and self.pairs.listing.by_listener
        launch(
            self.kernels.forward,
            lambda block: (-(-self.queries // block), self.rows),
            (*self.first, *self.listed(way), self.seed, out, tops, inverses, *self.sizes),
            **self.options,
        )
        return out, tops, inverses

    def listeners(self, *felt: Tensor) -> Tensor:
        dq = torch.empty_like(self.q)
        way = self.pairs.listing and self.pairs.listing.by_listener
        launch(
            self.kernels.listeners,
            lambda block: (-(-self.queries // block), self.rows),
            (*self.first, *self.listed(way), self.seed, *felt, dq, *self.sizes),
            **self.options,
        )
        return dq

    def speakers(self, *felt: Tensor) -> tuple[Tensor, Tensor]:
        dk, dv = (torch.empty_like(x) for x in self.first[1:3])
        way = self.pairs.listing and self.pairs.listing.by_speaker
        launch(
            self.kernels.speakers,
            lambda block: (-(-self.keys // block), self.rows),
            (*self.first, *self.listed(way), self.seed, *felt, dk, dv, *self.sizes),
            **self.options,
        )
        return dk, dv

    def offsets(self, *felt: Tensor) -> Tensor:
        """The gradient of the table."""
        listing, found = self.pairs.listing, self.q.new_empty(0, dtype=torch.float32)
        grid, bits = (self.q, self.q) if listing is None else (listing.grid(), listing.bits)
        across = 0

        def programs(block: int) -> tuple[int, int]:
            nonlocal across
            across = -(-self.keys // block)
            diagonals = -(-self.queries // block) + across - 1
            found.resize_(self.rows, diagonals, block, block)
            return diagonals, self.rows

        launch(
            self.kernels.offsets,
            programs,
            (*self.first, grid, bits, self.seed, *felt, found, *self.sizes),
            **{**self.options, "block": min(GRAIN, self.options["block"])},
        )
        assert self.table is not None
        return _along_offsets(found, len(self.table), across, self.queries, self.keys)


def _along_offsets(found: Tensor, tables: int, across: int, queries: int, keys: int) -> Tensor:
    """Sums of squares (B, diagonals, block, block), columns turned around, along their diagonals: of each
    offset, (tables, N + M − 1).
    """
    block = found.shape[-1]
    found = found.unflatten(0, (-1, tables)).sum(0)
    # Behind each row as many zeros: read in rows one shorter, row r is moved r to the right.
    moved = F.pad(found, (0, block)).flatten(-2)[..., :-block].unflatten(-1, (block, 2 * block - 1)).sum(-2)
    near, far = F.pad(moved, (0, 1)).unflatten(-1, (2, block)).unbind(-2)  # two offsets overlap
    total = F.pad(near, (0, 0, 0, 1)) + F.pad(far, (0, 0, 1, 0))
    begin = across * block - keys
    return total.flatten(-2)[..., begin : begin + queries + keys - 1]


def _or(x: Tensor, given: Tensor | None) -> Tensor:
    """What is given; x, which a kernel will not read, for what is not."""
    return x if given is None else given.contiguous()


def _wide(n: int) -> int:
    return max(16, 1 << (n - 1).bit_length())


class _Tiles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, constants, table, seed, pairs):
        training = any(ctx.needs_input_grad)
        # In training the result is wanted again, for ⟨g, o⟩, which nearly cancels: it is not rounded.
        out, tops, inverses = listen(
            q, k, v, constants, table, seed, pairs, torch.float32 if training else q.dtype
        )
        if training:
            ctx.pairs = pairs
            ctx.save_for_backward(q, k, v, constants, table, seed, out, tops, inverses)
            ctx.set_materialize_grads(False)
        return out.to(q.dtype)

    @staticmethod
    def backward(ctx, gradient):
        if gradient is None:
            return (None,) * 7
        q, k, v, constants, table, seed, out, tops, inverses = ctx.saved_tensors
        needs = (*ctx.needs_input_grad[:3], ctx.needs_input_grad[4])
        if torch.is_grad_enabled():  # this will be differentiated again

            def run(*tensors):
                q, k, v, *rest = tensors
                return composite(q, k, v, constants, rest[0] if rest else None, seed, ctx.pairs)

            given = (q, k, v) if table is None else (q, k, v, table)
            dq, dk, dv, *rest = gradients_again(run, given, needs[: len(given)], (gradient,))
            return dq, dk, dv, None, rest[0] if rest else None, None, None
        given = (q, k, v, constants, table, seed, ctx.pairs)
        dq, dk, dv, dtable = gradients(needs, *given, out, tops, inverses, gradient)
        return dq, dk, dv, None, dtable, None, None


def listen(q, k, v, constants, table, seed, pairs: Pairs, dtype: torch.dtype):
    from .sparse_triton import on

    with on(q.device):
        return Launches(q, k, v, constants, table, seed, pairs).forward(dtype)


def gradients(
    needs: Sequence[bool], q, k, v, constants, table, seed, pairs: Pairs, out, tops, inverses, gradient
):
    """Of q, k, v and the table; None for what is not needed."""
    from .sparse_triton import on

    gradient = gradient.contiguous()
    felt = gradient, tops, inverses, torch.linalg.vecdot(gradient.float(), out)
    dq = dk = dv = dtable = None
    with on(q.device):
        launches = Launches(q, k, v, constants, table, seed, pairs)
        compares = pairs.kind != "uniform"
        if needs[0] and compares:
            dq = launches.listeners(*felt)
        if needs[2] or (needs[1] and compares):
            dk, dv = launches.speakers(*felt)
        if needs[3]:
            dtable = launches.offsets(*felt)
    return dq, dk if needs[1] and compares else None, dv if needs[2] else None, dtable
