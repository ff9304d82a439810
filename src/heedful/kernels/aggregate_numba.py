"""The row kernel of `neighbor_argmax`, compiled by Numba on first use."""

from __future__ import annotations

import numpy as np
from numba import njit

_compile = njit(nogil=True, cache=True, error_model="numpy")


@_compile
def argmax_rows(first, last, rowptr, col, x, sign, out):
    """out[i, f] = the first col[s] in row i at which sign · x[col[s], f] is largest; −1 if there is none."""
    features = x.shape[1]
    best = np.empty(features, x.dtype)
    for i in range(first, last):
        start, stop = rowptr[i], rowptr[i + 1]
        leader = col[start] if start < stop else -1
        for f in range(features):
            out[i, f] = leader
        if start == stop:
            continue
        for f in range(features):
            best[f] = sign * x[leader, f]
        for slot in range(start + 1, stop):
            j = col[slot]
            for f in range(features):
                new, old = sign * x[j, f], best[f]
                # As in torch.max, NaN beats every number; the first NaN stays.
                if new > old or (new != new and old == old):
                    best[f] = new
                    out[i, f] = j
