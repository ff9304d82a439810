"""The sum over incoming edges and the dot product along them on the GPU; `propagate.py` has the formulas.

Tiles are (heads, edges, features), see `sparse_additive_triton.py`; hubs are cut as `rows_triton.py` says.
Heads that lie apart in x, as copies do under vmap, are read where they lie, and so lie the sums.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .propagate import lie_apart
from .rows_triton import lying, part_of, slots_of
from .sparse_general_triton import over_edges
from .sparse_triton import Launch, lanes, on


@triton.jit(do_not_specialize=["rows", "edges", "pieces", "weight_step", "weight_copy"])
def sums(
    rowptr, col, edge, x, weight, out, parts, rows, edges, pieces, x_copy, weight_step, weight_copy,
    H: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, FEATURES: tl.constexpr, BLOCKS: tl.constexpr,
    WIDE_BLOCKS: tl.constexpr, TILE: tl.constexpr, LANES: tl.constexpr, SPLIT: tl.constexpr,
    ACC: tl.constexpr, WIDE: tl.constexpr, WEIGHTED: tl.constexpr, EACH: tl.constexpr, X_STEP: tl.constexpr,
):  # fmt: skip
    """out[i, h] = Σ_s weight[edge[s], h] · x[col[s], h], a block of heads and one of features a program.

    EACH is 1 if heads lie apart, else H; then X_STEP is from row to row of x, `x_copy` from head to head.
    """
    program, block = part_of(tl.program_id(0), rows, pieces, BLOCKS * WIDE_BLOCKS, EACH, H)
    row, low, high, mine = slots_of(program, rowptr, rows, edges, pieces, SPLIT, WIDE)
    if mine:
        h = block // WIDE_BLOCKS * HEADS + tl.arange(0, HEADS)
        d = block % WIDE_BLOCKS * FEATURES + tl.arange(0, FEATURES)
        inside = (h < H)[:, None] & (d < D)[None, :]
        place = (h * D)[:, None] + d[None, :]
        x_at = lying(h, x_copy, EACH, H, D, WIDE)
        weight_at = lying(h, weight_copy, EACH, H, 1, WIDE)
        total = tl.zeros((HEADS, LANES, FEATURES), ACC)
        soon = tl.load(col + low + tl.arange(0, TILE), mask=low + tl.arange(0, TILE) < high, other=0)
        for t in range(0, high - low, TILE):
            at = low + t + tl.arange(0, TILE)
            ok = at < high
            # Whom the next tile asks is read before this one's answers are there.
            j, soon = soon, tl.load(col + at + TILE, mask=at + TILE < high, other=0)
            if WIDE:
                j = j.to(tl.int64)
            where = (j * X_STEP)[None, :, None] + x_at[:, None, None] + d[None, None, :]
            heard = tl.load(x + where, mask=ok[None, :, None] & inside[:, None, :], other=0).to(ACC)
            if WEIGHTED:
                e = tl.load(edge + at, mask=ok, other=0)
                if WIDE:
                    e = e.to(tl.int64)
                there = ok[None, :] & (h < H)[:, None]
                w = tl.load(weight + (e * weight_step)[None, :] + weight_at[:, None], mask=there, other=0)
                w = w.to(ACC)
                heard *= w[:, :, None]
            total += over_edges(heard, LANES)
        total = tl.sum(total, 1)
        if program < pieces:
            tl.store(parts + program.to(tl.int64) * (H * D) + place, total, mask=inside)
        else:
            where = row * (EACH * D) + lying(h, rows * D, EACH, H, D, WIDE)[:, None] + d[None, :]
            tl.store(out + where, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "edges", "pieces"])
def dots(
    rowptr, col, edge, g, x, out, rows, edges, pieces,
    H: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, FEATURES: tl.constexpr, BLOCKS: tl.constexpr,
    TILE: tl.constexpr, SPLIT: tl.constexpr, ACC: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """out[edge[s], h] = ⟨g[i, h], x[col[s], h]⟩."""
    program = tl.program_id(0) // BLOCKS
    row, low, high, mine = slots_of(program, rowptr, rows, edges, pieces, SPLIT, WIDE)
    if mine:
        h = tl.program_id(0) % BLOCKS * HEADS + tl.arange(0, HEADS)
        for t in range(0, high - low, TILE):
            at = low + t + tl.arange(0, TILE)
            ok = at < high
            j, e = tl.load(col + at, mask=ok, other=0), tl.load(edge + at, mask=ok, other=0)
            if WIDE:
                j, e = j.to(tl.int64), e.to(tl.int64)
            total = tl.zeros((HEADS, TILE), ACC)
            for start in range(0, D, FEATURES):
                d = start + tl.arange(0, FEATURES)
                inside = (h < H)[:, None] & (d < D)[None, :]
                mine_place = row * (H * D) + (h * D)[:, None] + d[None, :]
                here = tl.load(g + mine_place, mask=inside, other=0).to(ACC)
                where = (j * (H * D))[None, :, None] + (h * D)[:, None, None] + d[None, None, :]
                heard = tl.load(x + where, mask=ok[None, :, None] & inside[:, None, :], other=0).to(ACC)
                total += tl.sum(here[:, None, :] * heard, 2)
            there = ok[None, :] & (h < H)[:, None]
            place = (e * H)[None, :] + h[:, None]
            tl.store(out + place, total.to(out.dtype.element_ty), mask=there)


def _shape(heads: int, features: int, item: int) -> tuple[int, int, int, int, int]:
    """(heads, features a program; blocks of heads; edges at once, of them side by side), for one warp."""
    width = min(256, triton.next_power_of_2(features))
    together = min(triton.next_power_of_2(heads), max(1, 256 // width))
    side = lanes(together * width, item)
    return together, width, triton.cdiv(heads, together), max(8, side), side


def propagate(rowptr: Tensor, col: Tensor, edge: Tensor, x: Tensor, weight: Tensor | None, out: Tensor):
    """Fill out (targets, heads, features), whose heads lie apart if those of x do."""
    _, H, D = x.shape
    if not out.numel():
        return
    apart, x_copy, weight_steps, each = lie_apart(x), 0, (H, 1), H
    if apart:
        x_copy, each = x.stride(1), 1
        weight_steps = (1, 1) if weight is None else weight.stride()
    else:
        x = x.contiguous()
        weight = None if weight is None else weight.contiguous()
        if weight is None:  # one weight for all heads, so they are just more features
            H, D, each = 1, H * D, 1
    heads, features, blocks, tile, side = _shape(H, D, x.element_size())
    wide = triton.cdiv(D, features)
    with on(x.device):
        launch = Launch(x, rowptr, col, edge, out, weight)
        parts = launch.parts(H * D)
        sums[launch.programs(blocks * wide)](
            *launch.index, x, weight, out, parts, *launch.counts, x_copy, *weight_steps,
            H=H, D=D, HEADS=heads, FEATURES=features, BLOCKS=blocks, WIDE_BLOCKS=wide, TILE=tile, LANES=side,
            SPLIT=launch.split, WEIGHTED=weight is not None, EACH=each,
            X_STEP=x.stride(0) if apart else H * D, **launch.common, num_warps=1,
        )  # fmt: skip
        where = ((D, 0), (launch.rows * D, 0, D, 0)) if apart else (None, None)
        launch.add_parts(parts, out, H * D, out, 0, *where)


def edge_dot(rowptr: Tensor, col: Tensor, edge: Tensor, g: Tensor, x: Tensor) -> Tensor:
    _, H, D = x.shape
    out = x.new_empty((col.shape[0], H))
    if not out.numel() or not D:
        return out.zero_()
    g, x = g.contiguous(), x.contiguous()
    heads, features, blocks, tile, _ = _shape(H, D, x.element_size())
    with on(x.device):
        launch = Launch(x, rowptr, col, edge, out, g)
        dots[launch.programs(blocks)](
            *launch.index, g, x, out, *launch.counts,
            H=H, D=D, HEADS=heads, FEATURES=features, BLOCKS=blocks, TILE=tile,
            SPLIT=launch.split, **launch.common, num_warps=1,
        )  # fmt: skip
    return out
