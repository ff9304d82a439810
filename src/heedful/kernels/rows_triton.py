"""What the GPU kernels share: which edges a program takes, which dropout keeps, how hubs are put together.

One program takes one row. Rows of more than `SPLIT` edges (hubs) are cut where the edge list has a multiple
of SPLIT, so that a chunk of the list holds at most two pieces of hubs: one at its beginning, one that starts
inside. Programs 0 … 2·chunks−1 take those pieces, the others a row each; a second launch adds a hub's pieces
up in their order. Which hub a chunk belongs to is searched for on the spot: nothing is sorted or counted
beforehand, and a sum is always taken in the same order.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def row_of(rowptr, rows, slot):
    """The row `slot` belongs to: the last whose first slot is not behind it. A search by 64ths."""
    first, count = slot * 0, slot * 0 + rows
    while count > 1:
        step = (count + 63) // 64
        at = tl.arange(0, 64) * step
        start = tl.load(rowptr + first + at, mask=at < count, other=0)
        before = tl.sum(((at < count) & (start <= slot)).to(tl.int32), 0) - 1
        first += before * step
        count = tl.minimum(step, count - before * step)
    return first


@triton.jit
def slots_of(program, rowptr, rows, edges, pieces, SPLIT: tl.constexpr, WIDE: tl.constexpr):
    """(row, low, high, mine): the slots this program takes, of which row, and whether it has any business."""
    if program < pieces:
        first = (program // 2).to(rowptr.dtype.element_ty) * SPLIT
        end = tl.minimum(first + SPLIT, edges)
        inside = program % 2
        row = row_of(rowptr, rows, tl.where(inside == 1, end - 1, first))
        low, high = tl.load(rowptr + row), tl.load(rowptr + row + 1)
        mine = (high - low > SPLIT) & ((inside == 0) | (low > first))
        low, high = tl.maximum(low, first), tl.minimum(high, end)
    else:
        row = (program - pieces).to(rowptr.dtype.element_ty)
        low, high = tl.load(rowptr + row), tl.load(rowptr + row + 1)
        mine = (pieces == 0) | (high - low <= SPLIT)
    if WIDE:
        row = row.to(tl.int64)
    return row, low, high, mine


@triton.jit
def hub_at(chunk, rowptr, rows, edges, SPLIT: tl.constexpr):
    """Of the hub that starts in a chunk: (row, first chunk, last, starts inside?, is there one?)."""
    first = chunk.to(rowptr.dtype.element_ty) * SPLIT
    row = row_of(rowptr, rows, tl.minimum(first + SPLIT, edges) - 1)
    low, high = tl.load(rowptr + row), tl.load(rowptr + row + 1)
    mine = (high - low > SPLIT) & (low >= first)
    return row.to(tl.int64), chunk, (high - 1) // SPLIT, low > first, mine


@triton.jit
def mixed(x):
    """splitmix64's finaliser."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def head_keys(seeds, h, each):
    """One hash key a head; `each` heads share a seed and count from 0."""
    seed = tl.load(seeds + h // each).to(tl.uint64, bitcast=True)
    return mixed(mixed(seed) + (h % each + 1).to(tl.uint64) * 0x9E3779B97F4A7C15)


@triton.jit
def kept(keys, counter, THRESHOLD: tl.constexpr):
    """Is the pair `counter` kept? The same bits as `dropout.keep_mask`."""
    bits = mixed(keys + counter.to(tl.uint64) * 0x9E3779B97F4A7C15) >> 11
    return bits.to(tl.int64) >= THRESHOLD


@triton.jit
def lying(h, copy, EACH: tl.constexpr, H: tl.constexpr, STEP: tl.constexpr, WIDE: tl.constexpr):
    """Where a node's head h begins: STEP from head to head and, EACH heads being a copy, `copy` from one copy
    to the next, for copies may lie one behind the other.
    """
    place = h * STEP
    if EACH != H:
        which = h // EACH
        if WIDE:
            which = which.to(tl.int64)
        place = which * copy + h % EACH * STEP
    return place


@triton.jit
def part_of(program, rows, pieces, BLOCKS: tl.constexpr, EACH: tl.constexpr, H: tl.constexpr):
    """(which piece or row, which block of heads) a program takes: copies one after the other, so that what
    they read stays near; the heads of a node that lie side by side at once.
    """
    part, block = program // BLOCKS, program % BLOCKS
    if EACH != H:
        part, block = program % (rows + pieces), program // (rows + pieces)
    return part, block


@triton.jit(do_not_specialize=["rows", "edges", "copy", "rest_copy"])
def add_parts(
    rowptr, rows, edges, parts, out, rest, copy, rest_copy,
    WIDTH: tl.constexpr, REST: tl.constexpr, STEP: tl.constexpr, REST_STEP: tl.constexpr,
    EACH: tl.constexpr, REST_EACH: tl.constexpr, SPLIT: tl.constexpr, TOGETHER: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """A hub's row of `out` (WIDTH numbers) and of `rest` (REST): the sum of its pieces, in their order.

    EACH and REST_EACH of the numbers are a copy's; copies lie `copy` and `rest_copy` apart.
    """
    row, begin, last, inside, mine = hub_at(tl.program_id(0), rowptr, rows, edges, SPLIT)
    if mine:
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        here = column < WIDTH + REST
        total = tl.zeros((COLUMNS,), parts.dtype.element_ty)
        for chunk in range(begin, last + 1, TOGETHER):
            piece = chunk + tl.arange(0, TOGETHER)
            part = 2 * piece + ((piece == begin) & inside).to(tl.int32)
            at = part.to(tl.int64)[:, None] * (WIDTH + REST) + column[None, :]
            total += tl.sum(tl.load(parts + at, mask=(piece <= last)[:, None] & here[None, :], other=0), 0)
        at = row * STEP + lying(column, copy, EACH, WIDTH, 1, True)
        tl.store(out + at, total.to(out.dtype.element_ty), mask=column < WIDTH)
        if REST > 0:
            at = row * REST_STEP + lying(column - WIDTH, rest_copy, REST_EACH, REST, 1, True)
            tl.store(rest + at, total.to(rest.dtype.element_ty), mask=here & (column >= WIDTH))
