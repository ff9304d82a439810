"""The row kernels of `neighbor_argmax` and `neighbor_middle`, compiled by Numba on first use."""

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


@_compile
def middle_rows(first, last, rowptr, col, x, out):
    """out[:, i, f] = the sources of the lower and upper middle of x[col[s], f] in row i; −1 if none."""
    for i in range(first, last):
        start, stop = rowptr[i], rowptr[i + 1]
        degree = stop - start
        if degree == 0:
            out[:, i] = -1
            continue
        heard = np.empty(degree, x.dtype)
        for f in range(x.shape[1]):
            spoiled = -1
            for k in range(degree):
                heard[k] = x[col[start + k], f]
                if heard[k] != heard[k]:
                    spoiled = k
            if spoiled >= 0:
                out[:, i, f] = col[start + spoiled]
                continue
            order = _order(heard)
            out[0, i, f] = col[start + order[(degree - 1) // 2]]
            out[1, i, f] = col[start + order[degree // 2]]


@_compile
def _order(values):
    """A stable argsort: by insertion where that is quickest, else by merging."""
    if len(values) > 48:
        return np.argsort(values, kind="mergesort")
    order = np.arange(len(values))
    for k in range(1, len(values)):
        value, place = values[k], k
        while place > 0 and values[order[place - 1]] > value:
            order[place] = order[place - 1]
            place -= 1
        order[place] = k
    return order
