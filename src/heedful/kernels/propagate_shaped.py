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
    block = next((block for block in BLOCKS[heads > 1 and 2 :] if features % block == 0), None)
    if block is None:
        return None
    return shaped_rows(1, block) if heads == 1 else (rows_by_head(block), None)


@cache
def shaped_rows(heads: int, block: int):
    """out[i, h, f] = Σ_s weight[edge[s], h] · x[col[s], h, f], and the same with all weights one."""
    H, B = heads, block

    @njit(nogil=True, cache=True)
    def weighted(first, last, rowptr, col, edge, weight, x, out):
        width, end, nothing = x.shape[1] * x.shape[2], col.shape[0] - 1, splat(x.dtype.type(0), B)
        for i in range(first, last):
            for start in range(0, width, B):
                total = nothing
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
            for start in range(0, width, B):
                total = nothing
                for s in range(rowptr[i], rowptr[i + 1]):
                    prefetch(x, np.int64(col[min(s + ROW_AHEAD, end)]) * width + start, B)
                    total = total + load(x, np.int64(col[s]) * width + start, B)
                store(out, i * width + start, total)

    return weighted, plain


@cache
def rows_by_head(block: int):
    """The same with weights, for any number of heads (the copies under a vmap), four at a time."""
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
