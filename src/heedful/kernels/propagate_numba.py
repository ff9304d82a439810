"""The row kernels of `propagate`: serial, compiled by Numba on first use, run on threads by `over_rows`.

Four edges are taken at a time: their gathers are in flight together and the output row is loaded and stored
once for the four. The loop over features is innermost and contiguous, so LLVM turns it into vector
instructions. Reassociation and contraction are allowed; NaN and infinity are not assumed away.
"""

from __future__ import annotations

from numba import njit

from .propagate_prefetch import prefetch

_compile = njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc", "nsz"})

# How many edges ahead to ask for a row (8 was best of 4 … 16), and for a weight, which lies at a random
# place too.
ROW_AHEAD, WEIGHT_AHEAD = 8, 16


@_compile
def add_rows(first, last, rowptr, col, x, out):
    """out[i, f] = Σ_s x[col[s], f] over the slots s of row i."""
    features, end = x.shape[1], rowptr[last]
    for i in range(first, last):
        slot, stop = rowptr[i], rowptr[i + 1]
        for f in range(features):
            out[i, f] = 0
        while slot + 4 <= stop:
            if slot + ROW_AHEAD + 4 <= end:
                for k in range(4):
                    prefetch(x, col[slot + ROW_AHEAD + k])
            a, b, c, d = col[slot], col[slot + 1], col[slot + 2], col[slot + 3]
            for f in range(features):
                out[i, f] += (x[a, f] + x[b, f]) + (x[c, f] + x[d, f])
            slot += 4
        while slot < stop:
            a = col[slot]
            for f in range(features):
                out[i, f] += x[a, f]
            slot += 1


@_compile
def add_weighted_rows(first, last, rowptr, col, edge, weight, x, out):
    """out[i, h, f] = Σ_s weight[edge[s], h] · x[col[s], h, f] over the slots s of row i."""
    heads, features, end = x.shape[1], x.shape[2], rowptr[last]
    for i in range(first, last):
        slot, stop = rowptr[i], rowptr[i + 1]
        for h in range(heads):
            for f in range(features):
                out[i, h, f] = 0
        while slot + 4 <= stop:
            if slot + WEIGHT_AHEAD + 4 <= end:
                for k in range(4):
                    prefetch(weight, edge[slot + WEIGHT_AHEAD + k])
                    prefetch(x, col[slot + ROW_AHEAD + k])
            a, b, c, d = col[slot], col[slot + 1], col[slot + 2], col[slot + 3]
            ea, eb, ec, ed = edge[slot], edge[slot + 1], edge[slot + 2], edge[slot + 3]
            for h in range(heads):
                wa, wb, wc, wd = weight[ea, h], weight[eb, h], weight[ec, h], weight[ed, h]
                for f in range(features):
                    out[i, h, f] += (wa * x[a, h, f] + wb * x[b, h, f]) + (wc * x[c, h, f] + wd * x[d, h, f])
            slot += 4
        while slot < stop:
            a, ea = col[slot], edge[slot]
            for h in range(heads):
                wa = weight[ea, h]
                for f in range(features):
                    out[i, h, f] += wa * x[a, h, f]
            slot += 1


@_compile
def dot_rows(first, last, rowptr, col, edge, g, x, out):
    """out[edge[s], h] = ⟨g[i, h], x[col[s], h]⟩ for every slot s of row i."""
    heads, features, end = x.shape[1], x.shape[2], rowptr[last]
    for i in range(first, last):
        for slot in range(rowptr[i], rowptr[i + 1]):
            if slot + ROW_AHEAD < end:
                prefetch(x, col[slot + ROW_AHEAD])
            j, e = col[slot], edge[slot]
            for h in range(heads):
                total = x.dtype.type(0)
                for f in range(features):
                    total += g[i, h, f] * x[j, h, f]
                out[e, h] = total
