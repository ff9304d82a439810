"""GAT without edge extras, compiled for its numbers of heads and features: the path most graphs take."""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import njit

from .lanes import (
    exponential,
    fma,
    kept,
    larger,
    load,
    prefetch,
    reciprocal,
    repeat,
    splat,
    store,
    sums,
    where_positive,
)
from .sparse_common import AHEAD, counter_of, head_keys


@cache
def additive_kernels(heads: int, features: int):
    """GAT without edge extras: exp(leaky(q_i + k_j)) with heads and features known, everything in registers.

    leaky is increasing, so a first sweep over k alone finds the row's maximum, leaky(q_i + max_j k_j):
    so quick that backward finds it again instead of having it kept.
    Per head dS_ij = p_ij (g_i·v_j − D_i) sums to zero over j and leaky' is 1 or `slope`, so with
    O⁺_i = Σ_{q+k>0} p v and P⁺_i = Σ_{q+k>0} p:   dq_i = (1−slope) (g_i·O⁺_i − D_i P⁺_i), no gather.
    For the speakers the same split, summed before the dot product instead of after: with
    A_j = Σ_i p g_i (which is dv_j), A⁺_j its positive part, B_j = Σ_i p D_i and B⁺_j likewise:
        dk_j = slope (A_j·v_j − B_j) + (1−slope) (A⁺_j·v_j − B⁺_j),
    which trades 64 more multiply-adds an edge for 8 horizontal sums.
    Dropout only changes the p beside g and v, not the one beside D, so both hold with it.
    """
    H, F, T = heads, heads * features, 4 * heads

    @njit(nogil=True, cache=True, inline="always")
    def maximum(here, low, high, col, k, slopes, nothing):
        top = splat(k.dtype.type(-np.inf), H)
        for e in range(low, high):
            top = larger(top, load(k, np.int64(col[e]) * H, H))
        x = here + top
        top = where_positive(x, x, x * slopes)
        if low == high:
            top = nothing
        return top

    @njit(nogil=True, cache=True)
    def forward(
        start, stop, rowptr, col, edge, q, k, v, seeds, threshold, scale, implied, save, slope,
        out, z, plus, plus_mass,
    ):  # fmt: skip
        number = q.dtype.type
        keys, drop, columns = head_keys(seeds, H), threshold > np.uint64(0), k.shape[0]
        nothing, none = splat(number(0), H), splat(number(0), F)
        slopes, scale = splat(number(slope), H), number(scale)
        for i in range(start, stop):
            low, high = rowptr[i], rowptr[i + 1]
            here = load(q, i * H, H)
            top = maximum(here, low, high, col, k, slopes, nothing)
            total, positive, sum_, sum_positive = nothing, nothing, none, none
            for e in range(low, high):
                j = np.int64(col[e])
                prefetch(v, np.int64(col[min(e + AHEAD, col.shape[0] - 1)]) * F, F)
                x = here + load(k, j * H, H)
                p = exponential(where_positive(x, x, x * slopes) - top)
                value = load(v, j * F, F)
                total = total + p
                if save:
                    positive = positive + where_positive(x, p, nothing)
                if drop:
                    counter = counter_of(implied, columns, i, j, edge[e])
                    p = p * kept(keys, 0, counter, threshold, scale, H)
                sum_ = fma(repeat(p, F), value, sum_)
                if save:
                    sum_positive = fma(repeat(where_positive(x, p, nothing), F), value, sum_positive)
            store(z, i * H, total)
            share = reciprocal(total)
            store(out, i * F, sum_ * repeat(share, F))
            if save:
                store(plus, i * F, sum_positive * repeat(share, F))
                store(plus_mass, i * H, positive * share)

    @njit(nogil=True, cache=True)
    def listeners(start, stop, rowptr, col, gradient, q, k, z, out, plus, plus_mass, slope, table, dq):
        """dq, and one row (q, m, 1/z, D) a listener in `table`: what the speakers' pass gathers, side by
        side.
        """
        number = q.dtype.type
        slopes, rest, nothing = splat(number(slope), H), splat(number(1 - slope), H), splat(number(0), H)
        for i in range(start, stop):
            g, here = load(gradient, i * F, F), load(q, i * H, H)
            d = sums(g * load(out, i * F, F), H)
            store(table, i * 4 * H, here)
            top = maximum(here, rowptr[i], rowptr[i + 1], col, k, slopes, nothing)
            store(table, (i * 4 + 1) * H, top)
            store(table, (i * 4 + 2) * H, reciprocal(load(z, i * H, H)))
            store(table, (i * 4 + 3) * H, d)
            store(dq, i * H, rest * (sums(g * load(plus, i * F, F), H) - d * load(plus_mass, i * H, H)))

    @njit(nogil=True, cache=True)
    def speakers(
        start, stop, colptr, row, edge, table, gradient, k, v, seeds, threshold, scale, implied, slope, dk, dv
    ):
        number = k.dtype.type
        keys, drop, columns = head_keys(seeds, H), threshold > np.uint64(0), k.shape[0]
        nothing, none = splat(number(0), H), splat(number(0), F)
        slopes, rest, scale = splat(number(slope), H), splat(number(1 - slope), H), number(scale)
        for j in range(start, stop):
            here = load(k, j * H, H)
            b, b_positive, a, a_positive = nothing, nothing, none, none
            for e in range(colptr[j], colptr[j + 1]):
                i = np.int64(row[e])
                soon = np.int64(row[min(e + AHEAD, row.shape[0] - 1)])
                prefetch(gradient, soon * F, F)
                prefetch(table, soon * 4 * H, T)
                x = load(table, i * 4 * H, H) + here
                p = exponential(where_positive(x, x, x * slopes) - load(table, (i * 4 + 1) * H, H))
                p = p * load(table, (i * 4 + 2) * H, H)
                d = load(table, (i * 4 + 3) * H, H)
                b = fma(p, d, b)
                b_positive = fma(where_positive(x, p, nothing), d, b_positive)
                if drop:
                    counter = counter_of(implied, columns, i, j, edge[e])
                    p = p * kept(keys, 0, counter, threshold, scale, H)
                g = load(gradient, i * F, F)
                a = fma(repeat(p, F), g, a)
                a_positive = fma(repeat(where_positive(x, p, nothing), F), g, a_positive)
            value = load(v, j * F, F)
            store(dv, j * F, a)
            flat, steep = sums(a * value, H) - b, sums(a_positive * value, H) - b_positive
            store(dk, j * H, slopes * flat + rest * steep)

    return forward, listeners, speakers
