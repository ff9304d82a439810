"""`propagate` compiled for its shape: a row's sum stays in registers while its edges pass by.

Measured on 20,000 nodes, 400,000 edges, 64 features, one core: 2.8 ms, against 4.3 ms for the loops of
`propagate_numba`, which any shape can take.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import njit

from .lanes import fma, load, prefetch, repeat, splat, store

ROW_AHEAD, WEIGHT_AHEAD = 12, 24  # edges between asking for a row or a weight and using it
WORTH_A_SHAPE = 1 << 17  # scalar operations; a shape takes a second to compile, once and for all
BLOCKS = (64, 32, 16, 8)  # features summed at a time: four to eight registers


def rows_for(heads: int, features: int):
    """(weighted, plain) for this shape, or None if registers do not fit it."""
    whole = heads * features
    if heads > 1 and whole in BLOCKS and heads in (2, 4, 8, 16):
        return shaped_rows(heads, whole)
    if heads == 1:
        block = next((block for block in BLOCKS if features >= block), None)
        return None if block is None else shaped_rows(1, block)
    block = next((block for block in BLOCKS if features % block == 0), None)
    if block is None:
        return None
    if features == block or block >= 32:
        return rows_of_heads(block), None
    return rows_by_head(block), None


@cache
def shaped_rows(heads: int, block: int):
    """out[i, h, f] = Σ_s weight[edge[s], h] · x[col[s], h, f], and the same with all weights one.

    The last block of a row is moved back to where it fits, and sums some features again.
    """
    H, B = heads, block

    @njit(nogil=True, cache=True)
    def weighted(first, last, rowptr, col, edge, weight, x, out):
        width, end, nothing = x.shape[1] * x.shape[2], col.shape[0] - 1, splat(x.dtype.type(0), B)
        for i in range(first, last):
            for begin in range(0, width, B):
                start, total = min(begin, width - B), nothing
                for s in range(rowptr[i], rowptr[i + 1]):
                    prefetch(weight, np.int64(edge[min(s + WEIGHT_AHEAD, end)]) * H, H)
                    prefetch(x, np.int64(col[min(s + ROW_AHEAD, end)]) * width + start, B)
                    w = repeat(load(weight, np.int64(edge[s]) * H, H), B)
                    total = fma(w, load(x, np.int64(col[s]) * width + start, B), total)
                store(out, i * width + start, total)

    @njit(nogil=True, cache=True)
    def plain(first, last, rowptr, col, x, out):
        width, end, nothing = x.shape[1], col.shape[0] - 1, splat(x.dtype.type(0), B)
        for i in range(first, last):
            for begin in range(0, width, B):
                start, total = min(begin, width - B), nothing
                for s in range(rowptr[i], rowptr[i + 1]):
                    prefetch(x, np.int64(col[min(s + ROW_AHEAD, end)]) * width + start, B)
                    total = total + load(x, np.int64(col[s]) * width + start, B)
                store(out, i * width + start, total)

    return weighted, plain


@cache
def rows_of_heads(block: int):
    """The same with weights, for any number of heads (the copies under a vmap) whose features are whole
    blocks: eight registers of them at a time, then half as many, and so on.

    Measured on a table of 2,708 rows and 49,000 nonzeros for 10 copies of 16 features, one core: 0.6 ms, and
    0.9 ms its transpose, against 0.9 and 1.4 ms with heads four at a time and the rest one by one.
    """
    B = block
    most = min(8, 128 // B)
    half, quarter = max(1, most // 2), max(1, most // 4)
    MOST, HALF, QUARTER = most * B, half * B, quarter * B  # lanes of so many heads

    @njit(nogil=True, cache=True)
    def weighted(first, last, rowptr, col, edge, weight, x, out):
        heads, features, zero = x.shape[1], x.shape[2], x.dtype.type(0)
        graph = rowptr, col, edge
        for i in range(first, last):
            h = 0
            if features == B:
                while h + most <= heads:
                    _sum(i, h, h * B, graph, weight, x, out, splat(zero, most), splat(zero, MOST))
                    h += most
                if h + half <= heads:
                    _sum(i, h, h * B, graph, weight, x, out, splat(zero, half), splat(zero, HALF))
                    h += half
                if h + quarter <= heads:
                    _sum(i, h, h * B, graph, weight, x, out, splat(zero, quarter), splat(zero, QUARTER))
                    h += quarter
            while h < heads:
                for start in range(h * features, h * features + features, B):
                    _sum(i, h, start, graph, weight, x, out, splat(zero, 1), splat(zero, B))
                h += 1

    return weighted


@njit(nogil=True, cache=True)
def _sum(i, h, start, graph, weight, x, out, several, total):
    """Row i's sum from its feature `start` on, which is head h's first, for `several` heads side by side."""
    rowptr, col, edge = graph
    heads, width, end = x.shape[1], x.shape[1] * x.shape[2], col.shape[0] - 1
    for s in range(rowptr[i], rowptr[i + 1]):
        prefetch(weight, np.int64(edge[min(s + WEIGHT_AHEAD, end)]) * heads + h, several)
        prefetch(x, np.int64(col[min(s + ROW_AHEAD, end)]) * width + start, total)
        w = repeat(load(weight, np.int64(edge[s]) * heads + h, several), total)
        total = fma(w, load(x, np.int64(col[s]) * width + start, total), total)
    store(out, i * width + start, total)


@cache
def rows_by_head(block: int):
    """The same for heads whose features are several blocks, four heads at a time."""
    B = block

    @njit(nogil=True, cache=True)
    def weighted(first, last, rowptr, col, edge, weight, x, out):
        heads, features = x.shape[1], x.shape[2]
        width, end, nothing = heads * features, col.shape[0] - 1, splat(x.dtype.type(0), B)
        for i in range(first, last):
            for h in range(0, heads - heads % 4, 4):
                for start in range(h * features, h * features + features, B):
                    a, b, c, d = nothing, nothing, nothing, nothing
                    for s in range(rowptr[i], rowptr[i + 1]):
                        place = np.int64(col[s]) * width + start
                        ahead = np.int64(col[min(s + ROW_AHEAD, end)]) * width + start
                        prefetch(weight, np.int64(edge[min(s + WEIGHT_AHEAD, end)]) * heads + h, 4)
                        prefetch(x, ahead, B)
                        prefetch(x, ahead + 2 * features, B)
                        e = np.int64(edge[s])
                        a = fma(splat(weight[e, h], B), load(x, place, B), a)
                        b = fma(splat(weight[e, h + 1], B), load(x, place + features, B), b)
                        c = fma(splat(weight[e, h + 2], B), load(x, place + 2 * features, B), c)
                        d = fma(splat(weight[e, h + 3], B), load(x, place + 3 * features, B), d)
                    place = i * width + start
                    store(out, place, a)
                    store(out, place + features, b)
                    store(out, place + 2 * features, c)
                    store(out, place + 3 * features, d)
            for h in range(heads - heads % 4, heads):
                for start in range(h * features, h * features + features, B):
                    a = nothing
                    for s in range(rowptr[i], rowptr[i + 1]):
                        neighbor = load(x, np.int64(col[s]) * width + start, B)
                        a = fma(splat(weight[np.int64(edge[s]), h], B), neighbor, a)
                    store(out, i * width + start, a)

    return weighted
