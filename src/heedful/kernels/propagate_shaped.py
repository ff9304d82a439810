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


def block_of(heads: int, features: int) -> int | None:
    """How many neighbours of a row to sum at a time, or None if registers do not fit the shape."""
    if heads > 1:
        whole = heads * features
        return whole if whole in BLOCKS and heads in (2, 4, 8, 16) else None
    return next((block for block in BLOCKS if features % block == 0), None)


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
