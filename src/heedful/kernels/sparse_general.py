"""Every kind and every edge extra for any shape, compiled once; small graphs and very wide rows run on it."""

from __future__ import annotations

import numpy as np
from numba import njit

from .lanes import exponential, finite, first, fma, kept, load, splat, store, sums
from .sparse_common import ADDITIVE, ADDITIVE_V2, DOT, FAST, POWER, UNIFORM, counter_of, head_keys


@njit(nogil=True, cache=True)
def dot(x, at_x, y, at_y, count):
    lanes = splat(x.dtype.type(0), 8)
    whole = count - count % 8
    for c in range(0, whole, 8):
        lanes = fma(load(x, at_x + c, 8), load(y, at_y + c, 8), lanes)
    total = first(sums(lanes, 1))
    for c in range(whole, count):
        total += x[at_x + c] * y[at_y + c]
    return total


@njit(nogil=True, cache=True)
def add_scaled(out, at_out, scale, x, at_x, count):
    """out += scale · x"""
    lanes = splat(scale, 8)
    whole = count - count % 8
    for c in range(0, whole, 8):
        store(out, at_out + c, fma(lanes, load(x, at_x + c, 8), load(out, at_out + c, 8)))
    for c in range(whole, count):
        out[at_out + c] += scale * x[at_x + c]


@njit(nogil=True, cache=True)
def exponentials(x, count):
    """exp in place over a scratch array whose length is a multiple of 8."""
    for c in range(0, count, 8):
        store(x, c, exponential(load(x, c, 8)))


@njit(nogil=True, cache=True)
def exponential1(x):
    return first(exponential(splat(x, 1)))


@njit(nogil=True, cache=True)
def power(x, degree, result):
    """result · x^degree, by multiplication: exact signs, and 0⁰ is 1."""
    for _ in range(degree):
        result *= x
    return result


@njit(nogil=True, cache=True)
def shared(e, h, heads):
    """Where head h of edge e lies in a per-edge array with `heads` heads (1: all share it)."""
    return e * heads + (h if heads > 1 else 0)


@njit(nogil=True, cache=True)
def scores(
    kind, H, dk, q, i, k, j, a, key, hk, e, slope, degree, bias, hb, weight, hw,
    x, similarity, base, logit, at,
):  # fmt: skip
    """One edge, all heads: what the formula compares (x), s, w·s and l."""
    number = q.dtype.type
    for h in range(H):
        at_q, at_k, f = (i * H + h) * dk, (j * H + h) * dk, at + h
        at_key = shared(e, h, hk) * dk
        similar, s = number(1), number(0)
        if kind == ADDITIVE:
            s = q[at_q] + k[at_k]
            if hk:
                s += key[at_key]
            x[f] = s
            s = s if s > number(0) else slope * s
        elif kind == ADDITIVE_V2:
            for d in range(dk):
                y = q[at_q + d] + k[at_k + d]
                if hk:
                    y += key[at_key + d]
                s += a[h * dk + d] * (y if y > number(0) else slope * y)
        elif kind in (DOT, POWER):
            s = dot(q, at_q, k, at_k, dk)
            if hk:
                s += dot(q, at_q, key, at_key, dk)
            if kind == POWER:
                x[f] = s
                similar, s = power(s, degree, number(1)), number(0)
        similarity[f] = similar
        base[f] = similar * weight[shared(e, h, hw)] if hw else similar
        logit[f] = s + bias[shared(e, h, hb)] if hb else s


@njit(nogil=True, cache=True)
def block_of(heads):
    """Edges handled together, few enough that their scores stay in the first cache, and scratch to hold
    them.
    """
    block = max(1, min(64, 1024 // heads))
    return block, (block * heads + 7) // 8 * 8


@njit(nogil=True, cache=True, fastmath=FAST)
def forward_rows(
    start, stop, rowptr, col, edge, kind, H, dk, dv, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
    slope, degree, seeds, threshold, scale, implied, columns, out, m, z,
):  # fmt: skip
    """Softmax over each row in blocks of edges: scores, then a new maximum, then exp, then the weighted
    sum.
    """
    number = q.dtype.type
    slope, scale, silent = number(slope), number(scale), number(-np.inf)
    keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
    block, room = block_of(H)
    x, similarity, base, logit = (
        np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype),
    )  # fmt: skip
    top, peak, total = np.empty(H, q.dtype), np.empty(H, q.dtype), np.empty(H, np.float64)
    sum_ = np.empty(H * dv, q.dtype)
    for i in range(start, stop):
        top[:], total[:], sum_[:] = silent, 0, number(0)
        low, high = np.int64(rowptr[i]), np.int64(rowptr[i + 1])
        for here in range(low, high, block):
            count = min(block, high - here)
            peak[:] = top
            for b in range(count):
                j, e = np.int64(col[here + b]), np.int64(edge[here + b])
                scores(
                    kind, H, dk, q, i, k, j, a, key, hk, e, slope, degree, bias, hb, weight, hw,
                    x, similarity, base, logit, b * H,
                )  # fmt: skip
                for h in range(H):
                    if base[b * H + h] != number(0) and logit[b * H + h] > peak[h]:
                        peak[h] = logit[b * H + h]
            for h in range(H):
                if peak[h] > top[h]:
                    if top[h] > silent:
                        less = exponential1(top[h] - peak[h])
                        total[h] *= less
                        for d in range(dv):
                            sum_[h * dv + d] *= less
                    top[h] = peak[h]
                if peak[h] == silent:
                    peak[h] = number(0)
            for b in range(count):
                for h in range(H):
                    logit[b * H + h] -= peak[h]
            exponentials(logit, count * H)
            for b in range(count):
                j, e = np.int64(col[here + b]), np.int64(edge[here + b])
                for h in range(H):
                    f = b * H + h
                    # Not base·exp: an edge of weight 0 is no part of the maximum, so its exp may be inf.
                    p = base[f] * logit[f] if base[f] != number(0) else number(0)
                    total[h] += p
                    if drop:
                        p *= first(kept(keys, h, counter_of(implied, columns, i, j, e), threshold, scale, 1))
                    add_scaled(sum_, h * dv, p, v, (j * H + h) * dv, dv)
                    if hv:
                        add_scaled(sum_, h * dv, p, value, shared(e, h, hv) * dv, dv)
        for h in range(H):
            z_ih = number(total[h])
            m[i * H + h] = top[h] if top[h] > silent else number(0)
            z[i * H + h] = z_ih
            for d in range(dv):
                out[(i * H + h) * dv + d] = number(0) if z_ih == number(0) else sum_[h * dv + d] / z_ih


@njit(nogil=True, cache=True)
def row_dots(start, stop, rowptr, gradient, out, H, dv, result):
    """D_i = g_i · out_i; ∞ where a listener has one speaker, whose r = g·v − D is 0 then, not what rounding
    leaves, which a score near 0 would blow up.
    """
    for i in range(start, stop):
        lone = rowptr[i + 1] - rowptr[i] == 1
        for f in range(i * H, (i + 1) * H):
            result[f] = np.inf if lone else dot(gradient, f * dv, out, f * dv, dv)


@njit(nogil=True, cache=True)
def score_gradient(kind, x, slope, degree, degrees, weight, share, r, ds):
    """dL/dx from dL/d(logit) = ds; for a power, whose x is not in the logit, from its share exp(logit −
    m)/z.
    """
    if kind == ADDITIVE:
        return ds if x > 0 else slope * ds
    if kind == POWER:
        # An edge of weight 0 is no part of the maximum: its share may be inf.
        return power(x, degree - 1, weight * degrees) * share * r if weight != 0 else weight
    return ds


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_rows(
    start, stop, rowptr, col, edge, kind, H, dk, dv, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
    slope, degree, seeds, threshold, scale, implied, columns, gradient, m, z, D,
    dq, da, dbias, dweight, dkey, dvalue,
):  # fmt: skip
    """Everything summed over a listener's edges, and everything that belongs to one edge; empty arrays
    are skipped.
    """
    number = q.dtype.type
    slope, scale, degrees = number(slope), number(scale), number(degree)
    keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
    block, room = block_of(H)
    x, similarity, base, logit = (
        np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype),
    )  # fmt: skip
    need_q, need_a, need_key = len(dq) > 0, len(da) > 0, len(dkey) > 0
    for i in range(start, stop):
        for f in range(i * H * dk, (i + 1) * H * dk):
            if need_q:
                dq[f] = number(0)
            if need_a:
                da[f] = number(0)
        low, high = np.int64(rowptr[i]), np.int64(rowptr[i + 1])
        for here in range(low, high, block):
            count = min(block, high - here)
            for b in range(count):
                j, e = np.int64(col[here + b]), np.int64(edge[here + b])
                scores(
                    kind, H, dk, q, i, k, j, a, key, hk, e, slope, degree, bias, hb, weight, hw,
                    x, similarity, base, logit, b * H,
                )  # fmt: skip
                for h in range(H):
                    logit[b * H + h] -= m[i * H + h]
            exponentials(logit, count * H)
            for b in range(count):
                j, e = np.int64(col[here + b]), np.int64(edge[here + b])
                # Heads that share an edge input add up in its one slot.
                if hb == 1 and len(dbias) > 0:
                    dbias[e] = number(0)
                if hw == 1 and len(dweight) > 0:
                    dweight[e] = number(0)
                if hk == 1 and need_key:
                    dkey[e * dk : (e + 1) * dk] = number(0)
                if hv == 1 and len(dvalue) > 0:
                    dvalue[e * dv : (e + 1) * dv] = number(0)
                for h in range(H):
                    f, at_g = b * H + h, (i * H + h) * dv
                    z_ih = z[i * H + h]
                    share = number(0) if z_ih == number(0) else logit[f] / z_ih
                    p = base[f] * share if base[f] != number(0) else number(0)
                    keep = number(1)
                    if drop:
                        counter = counter_of(implied, columns, i, j, e)
                        keep = first(kept(keys, h, counter, threshold, scale, 1))
                    r = dot(gradient, at_g, v, (j * H + h) * dv, dv)
                    if hv:
                        r += dot(gradient, at_g, value, shared(e, h, hv) * dv, dv)
                    r = first(finite(splat(keep * r - D[i * H + h], 1)))
                    ds = p * r
                    if len(dbias) > 0:
                        if hb == 1:
                            dbias[e] += ds
                        else:
                            dbias[e * H + h] = ds
                    if len(dweight) > 0:
                        change = similarity[f] * share * r
                        if hw == 1:
                            dweight[e] += change
                        else:
                            dweight[e * H + h] = change
                    if len(dvalue) > 0:
                        at = shared(e, h, hv) * dv
                        if hv > 1:
                            dvalue[at : at + dv] = number(0)
                        add_scaled(dvalue, at, p * keep, gradient, at_g, dv)
                    if not (need_q or need_a or need_key) or kind == UNIFORM:
                        continue
                    at_q, at_k, at_key = (i * H + h) * dk, (j * H + h) * dk, shared(e, h, hk) * dk
                    if need_key and hk > 1:
                        dkey[at_key : at_key + dk] = number(0)
                    if kind == ADDITIVE_V2:
                        for d in range(dk):
                            y = q[at_q + d] + k[at_k + d]
                            if hk:
                                y += key[at_key + d]
                            dy = ds * a[h * dk + d] * (number(1) if y > number(0) else slope)
                            if need_q:
                                dq[at_q + d] += dy
                            if need_key:
                                dkey[at_key + d] += dy
                            if need_a:
                                da[at_q + d] += ds * (y if y > number(0) else slope * y)
                        continue
                    w = weight[shared(e, h, hw)] if hw else number(1)
                    dx = score_gradient(kind, x[f], slope, degree, degrees, w, share, r, ds)
                    if kind == ADDITIVE:
                        if need_q:
                            dq[at_q] += dx
                        if need_key:
                            dkey[at_key] += dx
                    else:
                        if need_q:
                            add_scaled(dq, at_q, dx, k, at_k, dk)
                            if hk:
                                add_scaled(dq, at_q, dx, key, at_key, dk)
                        if need_key:
                            add_scaled(dkey, at_key, dx, q, at_q, dk)


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_columns(
    start, stop, colptr, row, edge, kind, H, dk, dv, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
    slope, degree, seeds, threshold, scale, implied, columns, gradient, m, z, D, dk_, dv_,
):  # fmt: skip
    """dk and dv: everything summed over a speaker's edges, by the transpose, so no two threads meet."""
    number = q.dtype.type
    slope, scale, degrees = number(slope), number(scale), number(degree)
    keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
    block, room = block_of(H)
    x, similarity, base, logit = (
        np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype),
    )  # fmt: skip
    need_k, need_v = len(dk_) > 0, len(dv_) > 0
    for j in range(start, stop):
        if need_k:
            dk_[j * H * dk : (j + 1) * H * dk] = number(0)
        if need_v:
            dv_[j * H * dv : (j + 1) * H * dv] = number(0)
        low, high = np.int64(colptr[j]), np.int64(colptr[j + 1])
        for here in range(low, high, block):
            count = min(block, high - here)
            for b in range(count):
                i, e = np.int64(row[here + b]), np.int64(edge[here + b])
                scores(
                    kind, H, dk, q, i, k, j, a, key, hk, e, slope, degree, bias, hb, weight, hw,
                    x, similarity, base, logit, b * H,
                )  # fmt: skip
                for h in range(H):
                    logit[b * H + h] -= m[i * H + h]
            exponentials(logit, count * H)
            for b in range(count):
                i, e = np.int64(row[here + b]), np.int64(edge[here + b])
                for h in range(H):
                    f, at_g, at_v = b * H + h, (i * H + h) * dv, (j * H + h) * dv
                    z_ih = z[i * H + h]
                    share = number(0) if z_ih == number(0) else logit[f] / z_ih
                    p = base[f] * share if base[f] != number(0) else number(0)
                    keep = number(1)
                    if drop:
                        counter = counter_of(implied, columns, i, j, e)
                        keep = first(kept(keys, h, counter, threshold, scale, 1))
                    if need_v:
                        add_scaled(dv_, at_v, p * keep, gradient, at_g, dv)
                    if not need_k or kind == UNIFORM:
                        continue
                    r = dot(gradient, at_g, v, at_v, dv)
                    if hv:
                        r += dot(gradient, at_g, value, shared(e, h, hv) * dv, dv)
                    r = first(finite(splat(keep * r - D[i * H + h], 1)))
                    ds = p * r
                    at_q, at_k, at_key = (i * H + h) * dk, (j * H + h) * dk, shared(e, h, hk) * dk
                    if kind == ADDITIVE_V2:
                        for d in range(dk):
                            y = q[at_q + d] + k[at_k + d]
                            if hk:
                                y += key[at_key + d]
                            dk_[at_k + d] += ds * a[h * dk + d] * (number(1) if y > number(0) else slope)
                        continue
                    w = weight[shared(e, h, hw)] if hw else number(1)
                    dx = score_gradient(kind, x[f], slope, degree, degrees, w, share, r, ds)
                    if kind == ADDITIVE:
                        dk_[at_k] += dx
                    else:
                        add_scaled(dk_, at_k, dx, q, at_q, dk)


@njit(nogil=True, cache=True)
def sum_rows(parts, rows, count, out):
    """Σ over rows, in one fixed order however many threads filled them; 64 rows at a time, to round less."""
    partial = np.empty(count, parts.dtype)
    out[:] = 0
    for here in range(0, rows, 64):
        partial[:] = 0
        for i in range(here, min(here + 64, rows)):
            for c in range(count):
                partial[c] += parts[i * count + c]
        for c in range(count):
            out[c] += partial[c]


@njit(nogil=True, cache=True)
def transpose(rowptr, col, edge, colptr, row, edge_transposed):
    """The same edges by speaker, each speaker's in order of listener: a counting sort."""
    colptr[:] = 0
    for e in range(len(col)):
        colptr[np.int64(col[e]) + 1] += 1
    for j in range(len(colptr) - 1):
        colptr[j + 1] += colptr[j]
    place = colptr.copy()
    for i in range(len(rowptr) - 1):
        for e in range(rowptr[i], rowptr[i + 1]):
            j = np.int64(col[e])
            at = np.int64(place[j])
            row[at], edge_transposed[at] = i, edge[e]
            place[j] += 1
