"""Scores of many GAT layers on the GPU, and the gradients of the vectors that make them: `gat_stacked.py`.

Both go through z once. Rows of a tile are nodes and, within each, heads; copies are the grid's third
dimension.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .sparse_triton import Launch, _through


@triton.jit
def rows_of(
    step, steps, nodes, copy,
    H: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, FEATURES: tl.constexpr, TILE: tl.constexpr,
    STEP: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """(node, head, those there; places in z, those there) of a tile."""
    n = (tl.program_id(0) * steps + step) * TILE + tl.arange(0, TILE)
    d = tl.arange(0, FEATURES)
    which = tl.program_id(2)
    if WIDE:
        n, which = n.to(tl.int64), which.to(tl.int64)
    i, h = n // HEADS, n % HEADS + tl.program_id(1) * HEADS
    there = (i < nodes) & (h < H)
    place = which * copy + (i * STEP + h * D)[:, None] + d[None, :]
    return which * nodes + i, h, there, place, there[:, None] & (d < D)[None, :]


@triton.jit(do_not_specialize=["nodes", "steps"])
def scores(
    z, listener, speaker, near, nodes, steps, copy,
    H: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, FEATURES: tl.constexpr, TILE: tl.constexpr,
    STEP: tl.constexpr, ACC: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """l·z and s·z, side by side in `near`, 2·H a node."""
    d = tl.arange(0, FEATURES)
    for step in range(steps):
        i, h, there, place, inside = rows_of(
            step, steps, nodes, copy, H, D, HEADS, FEATURES, TILE, STEP, WIDE
        )
        row = tl.load(z + place, mask=inside, other=0).to(ACC)
        own = tl.program_id(2) * (H * D) + (h * D)[:, None] + d[None, :]
        l = tl.load(listener + own, mask=inside, other=0).to(ACC)
        s = tl.load(speaker + own, mask=inside, other=0).to(ACC)
        at = near + i * (2 * H) + h
        tl.store(at, tl.sum(row * l, 1).to(near.dtype.element_ty), mask=there)
        tl.store(at + H, tl.sum(row * s, 1).to(near.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["nodes", "steps"])
def vectors(
    z, d_near, sums, nodes, steps, copy,
    H: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, FEATURES: tl.constexpr, TILE: tl.constexpr,
    STEP: tl.constexpr, ACC: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """What a program's nodes add to dl = Σ_i dq_i z_i and ds = Σ_i dk_i z_i, side by side in `sums`."""
    listener = tl.zeros((TILE, FEATURES), ACC)
    speaker = tl.zeros((TILE, FEATURES), ACC)
    for step in range(steps):
        i, h, there, place, inside = rows_of(
            step, steps, nodes, copy, H, D, HEADS, FEATURES, TILE, STEP, WIDE
        )
        row = tl.load(z + place, mask=inside, other=0).to(ACC)
        at = d_near + i * (2 * H) + h
        listener += tl.load(at, mask=there, other=0).to(ACC)[:, None] * row
        speaker += tl.load(at + H, mask=there, other=0).to(ACC)[:, None] * row
    h, d = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, FEATURES)
    part = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
    at = sums + part * (2 * H * D) + (h * D)[:, None] + d[None, :]
    inside = (h < H)[:, None] & (d < D)[None, :]
    tl.store(at, tl.sum(tl.reshape(listener, (TILE // HEADS, HEADS, FEATURES)), 0), mask=inside)
    tl.store(at + H * D, tl.sum(tl.reshape(speaker, (TILE // HEADS, HEADS, FEATURES)), 0), mask=inside)


def scored(launch: Launch, z: Tensor, listener: Tensor, speaker: Tensor, near: Tensor) -> None:
    """Fill `near` (copies, nodes, 2 · heads): l·z and s·z, given l and s (copies, heads, dim)."""
    copies, H, D = listener.shape
    grid, steps, shape = _through(launch.rows, H, D, copies)
    scores[grid](
        z, listener, speaker, near, launch.rows, steps, z.stride(0),
        STEP=z.stride(1), **shape, **launch.common, num_warps=4,
    )  # fmt: skip


def of_vectors(launch: Launch, z: Tensor, d_near: Tensor, sizes: tuple[int, int]) -> Tensor:
    """dl and ds, (copies, 2, heads, dim), in the precision of sums."""
    copies, (H, D) = len(z), sizes
    grid, steps, shape = _through(launch.rows, H, D, copies)
    sums = z.new_empty((copies, grid[0], 2, H, D), dtype=launch.sum)
    vectors[grid](
        z, d_near, sums, launch.rows, steps, z.stride(0),
        STEP=z.stride(1), **shape, **launch.common, num_warps=4,
    )  # fmt: skip
    return sums.sum(1)
