"""Every kind and edge extra, compiled for given numbers of heads and features; worth it on large graphs."""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import njit

from .lanes import (
    exponential,
    finite,
    first,
    fma,
    kept,
    larger,
    load,
    over_heads,
    prefetch,
    repeat,
    splat,
    store,
    sums,
    tile,
    where_nonzero,
    where_positive,
)
from .sparse_common import ADDITIVE, ADDITIVE_V2, AHEAD, DOT, KINDS, POWER, UNIFORM, counter_of, head_keys


@njit(nogil=True, cache=True)
def leaky(x, slope):
    return where_positive(x, x, x * splat(slope, x))


@njit(nogil=True, cache=True)
def edge_number(array, heads, e, like):
    """A per-edge number for each head, from an array of one head (shared) or of all."""
    return splat(array[e], like) if heads == 1 else load(array, e * heads, like)


@njit(nogil=True, cache=True)
def add_edge_vector(x, array, heads, width, e, one):
    """x + a per-edge vector for each head; `one` has the `width` lanes of a single head."""
    if heads == 0:
        return x
    if heads == 1:
        return x + tile(load(array, e * width, one), x)
    return x + load(array, e * heads * width, x)


@njit(nogil=True, cache=True)
def store_edge_number(array, heads, e, x):
    """Heads that share an edge input add up in its one slot."""
    if heads == 1:
        array[e] = first(sums(x, 1))
    else:
        store(array, e * heads, x)


@njit(nogil=True, cache=True)
def store_edge_vector(array, heads, width, e, x, one):
    if heads == 1:
        store(array, e * width, over_heads(x, one))
    else:
        store(array, e * heads * width, x)


@njit(nogil=True, cache=True)
def lane_scores(kind, x, y, a, slope, degree, bias, hb, weight, hw, e, ones):
    """One edge, all heads, from x = q_i and y = k_j + key_e: what the formula compares, s, w·s and l."""
    none = ones - ones
    compared, similarity, logit = none, ones, none
    if kind == ADDITIVE:
        compared = sums(x + y, ones)
        logit = leaky(compared, slope)
    elif kind == ADDITIVE_V2:
        logit = sums(a * leaky(x + y, slope), ones)
    elif kind == DOT:
        logit = sums(x * y, ones)
    elif kind == POWER:
        compared = sums(x * y, ones)
        for _ in range(degree):
            similarity = similarity * compared
    base = similarity * edge_number(weight, hw, e, ones) if hw else similarity
    if hb:
        logit = logit + edge_number(bias, hb, e, ones)
    return compared, similarity, base, logit


@njit(nogil=True, cache=True)
def lane_gradient(kind, x, y, a, slope, degree, degrees, weight, hw, e, compared, share, r, ds):
    """dL/d(x + y) where they are added; where they are multiplied, what multiplies the other."""
    if kind == ADDITIVE:
        return repeat(where_positive(compared, ds, ds * splat(slope, ds)), x)
    if kind == ADDITIVE_V2:
        dy = repeat(ds, x) * a
        return where_positive(x + y, dy, dy * splat(slope, x))
    if kind == POWER:
        change = share * r * splat(degrees, ds)
        for _ in range(degree - 1):
            change = change * compared
        if hw:
            # An edge of weight 0 is no part of the maximum: its share may be inf.
            given = edge_number(weight, hw, e, ds)
            change = where_nonzero(given, change * given, given)
        return repeat(change, x)
    return repeat(ds, x)


@cache
def shaped_kernels(kind_name: str, heads: int, key_features: int, features: int):
    """Every kind with every extra, for one shape: `forward_rows` and its kin with all of a row in registers.

    Worth a compilation (a second or two, kept on disk) where edges are many: ten times as fast as the
    general ones.
    """
    kind, H, C, D = KINDS[kind_name], heads, max(key_features, 1), features
    K, F = H * C, H * D
    multiplies, compares = kind in (DOT, POWER), kind != UNIFORM

    @njit(nogil=True, cache=True)
    def forward(
        start, stop, rowptr, col, edge, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
        slope, degree, seeds, threshold, scale, implied, columns, out, m, z,
    ):  # fmt: skip
        number = v.dtype.type
        keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
        slope, scale = number(slope), number(scale)
        none, ones = splat(number(0), H), splat(number(1), H)
        nowhere, nothing = splat(number(0), K), splat(number(0), F)
        silent, one_key, one_value = splat(number(-np.inf), H), splat(number(0), C), splat(number(0), D)
        factors = load(a, 0, K) if kind == ADDITIVE_V2 else nowhere
        for i in range(start, stop):
            x = load(q, i * K, K) if compares else nowhere
            top, total, sum_ = silent, none, nothing
            for at in range(rowptr[i], rowptr[i + 1]):
                j, e = np.int64(col[at]), np.int64(edge[at])
                soon = np.int64(col[min(at + AHEAD, col.shape[0] - 1)])
                prefetch(v, soon * F, F)
                y = nowhere
                if compares:
                    prefetch(k, soon * K, K)
                    y = add_edge_vector(load(k, j * K, K), key, hk, C, e, one_key)
                _, _, base, logit = lane_scores(
                    kind, x, y, factors, slope, degree, bias, hb, weight, hw, e, ones
                )
                # Two exponentials an edge and no branch: with eight heads some maximum moves at most edges.
                new = larger(top, where_nonzero(base, logit, silent))
                shift = finite(new)
                less = exponential(top - shift)
                # Not base·exp: an edge of weight 0 is no part of the maximum, so its exp may be inf.
                p = where_nonzero(base, base * exponential(logit - shift), none)
                top, total = new, fma(total, less, p)
                if drop:
                    p = p * kept(keys, 0, counter_of(implied, columns, i, j, e), threshold, scale, H)
                heard = add_edge_vector(load(v, j * F, F), value, hv, D, e, one_value)
                sum_ = fma(repeat(p, F), heard, sum_ * repeat(less, F))
            store(m, i * H, finite(top))
            store(z, i * H, total)
            # Divided, not multiplied by 1/z: z may be so small that 1/z is inf.
            total = where_nonzero(total, total, ones)
            sum_ = where_nonzero(repeat(total, F), sum_ / repeat(total, F), nothing)
            store(out, i * F, sum_)

    @njit(nogil=True, cache=True)
    def listeners(start, stop, rowptr, gradient, out, m, z, table):
        """(m, z, D) a listener side by side, for the two passes below; ∞ for a z of 0, which makes all shares
        0, and for the D of a listener with one speaker, as in `row_dots`.
        """
        number = gradient.dtype.type
        infinite = splat(number(np.inf), H)
        for i in range(start, stop):
            total = load(z, i * H, H)
            store(table, i * 3 * H, load(m, i * H, H))
            store(table, (i * 3 + 1) * H, where_nonzero(total, total, infinite))
            dots = sums(load(gradient, i * F, F) * load(out, i * F, F), H)
            store(table, (i * 3 + 2) * H, infinite if rowptr[i + 1] - rowptr[i] == 1 else dots)

    @njit(nogil=True, cache=True)
    def rows(
        start, stop, rowptr, col, edge, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
        slope, degree, seeds, threshold, scale, implied, columns, gradient, table,
        dq, da, dbias, dweight, dkey, dvalue,
    ):  # fmt: skip
        number = v.dtype.type
        keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
        slope, scale, degrees = number(slope), number(scale), number(degree)
        none, ones, nowhere = splat(number(0), H), splat(number(1), H), splat(number(0), K)
        one_key, one_value = splat(number(0), C), splat(number(0), D)
        factors = load(a, 0, K) if kind == ADDITIVE_V2 else nowhere
        for i in range(start, stop):
            x = load(q, i * K, K) if compares else nowhere
            g = load(gradient, i * F, F)
            m, z = load(table, i * 3 * H, H), load(table, (i * 3 + 1) * H, H)
            d = load(table, (i * 3 + 2) * H, H)
            sum_q, sum_a = nowhere, nowhere
            for at in range(rowptr[i], rowptr[i + 1]):
                j, e = np.int64(col[at]), np.int64(edge[at])
                soon = np.int64(col[min(at + AHEAD, col.shape[0] - 1)])
                prefetch(v, soon * F, F)
                y = nowhere
                if compares:
                    prefetch(k, soon * K, K)
                    y = add_edge_vector(load(k, j * K, K), key, hk, C, e, one_key)
                compared, similarity, base, logit = lane_scores(
                    kind, x, y, factors, slope, degree, bias, hb, weight, hw, e, ones
                )
                share = exponential(logit - m) / z
                p = where_nonzero(base, base * share, none)
                heard = add_edge_vector(load(v, j * F, F), value, hv, D, e, one_value)
                r, spoken = sums(g * heard, H), p
                if drop:
                    keep = kept(keys, 0, counter_of(implied, columns, i, j, e), threshold, scale, H)
                    r, spoken = r * keep, p * keep
                r = finite(r - d)
                ds = p * r
                if len(dbias) > 0:
                    store_edge_number(dbias, hb, e, ds)
                if len(dweight) > 0:
                    store_edge_number(dweight, hw, e, similarity * share * r)
                if len(dvalue) > 0:
                    store_edge_vector(dvalue, hv, D, e, repeat(spoken, F) * g, one_value)
                if compares:
                    change = lane_gradient(
                        kind, x, y, factors, slope, degree, degrees, weight, hw, e, compared, share, r, ds
                    )
                    sum_q = fma(change, y, sum_q) if multiplies else sum_q + change
                    if len(dkey) > 0:
                        store_edge_vector(dkey, hk, C, e, change * x if multiplies else change, one_key)
                    if kind == ADDITIVE_V2:
                        sum_a = fma(repeat(ds, K), leaky(x + y, slope), sum_a)
            if len(dq) > 0:
                store(dq, i * K, sum_q)
            if len(da) > 0:
                store(da, i * K, sum_a)

    @njit(nogil=True, cache=True)
    def speakers(
        start, stop, colptr, row, edge, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
        slope, degree, seeds, threshold, scale, implied, columns, gradient, table, dk, dv,
    ):  # fmt: skip
        number = v.dtype.type
        keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
        slope, scale, degrees = number(slope), number(scale), number(degree)
        none, ones = splat(number(0), H), splat(number(1), H)
        nowhere, nothing = splat(number(0), K), splat(number(0), F)
        one_key, one_value = splat(number(0), C), splat(number(0), D)
        factors = load(a, 0, K) if kind == ADDITIVE_V2 else nowhere
        for j in range(start, stop):
            here = load(k, j * K, K) if compares else nowhere
            said = load(v, j * F, F)
            sum_k, sum_v = nowhere, nothing
            for at in range(colptr[j], colptr[j + 1]):
                i, e = np.int64(row[at]), np.int64(edge[at])
                soon = np.int64(row[min(at + AHEAD, row.shape[0] - 1)])
                prefetch(gradient, soon * F, F)
                prefetch(table, soon * 3 * H, H)
                x, y = nowhere, nowhere
                if compares:
                    prefetch(q, soon * K, K)
                    x, y = load(q, i * K, K), add_edge_vector(here, key, hk, C, e, one_key)
                compared, _, base, logit = lane_scores(
                    kind, x, y, factors, slope, degree, bias, hb, weight, hw, e, ones
                )
                share = exponential(logit - load(table, i * 3 * H, H)) / load(table, (i * 3 + 1) * H, H)
                p = where_nonzero(base, base * share, none)
                spoken, g = p, load(gradient, i * F, F)
                keep = ones
                if drop:
                    keep = kept(keys, 0, counter_of(implied, columns, i, j, e), threshold, scale, H)
                    spoken = p * keep
                sum_v = fma(repeat(spoken, F), g, sum_v)
                if compares:
                    r = sums(g * add_edge_vector(said, value, hv, D, e, one_value), H)
                    r = finite(r * keep - load(table, (i * 3 + 2) * H, H))
                    change = lane_gradient(
                        kind, x, y, factors, slope, degree, degrees, weight, hw, e, compared, share, r, p * r
                    )
                    sum_k = fma(change, x, sum_k) if multiplies else sum_k + change
            if len(dk) > 0:
                store(dk, j * K, sum_k)
            if len(dv) > 0:
                store(dv, j * F, sum_v)

    return forward, listeners, rows, speakers
