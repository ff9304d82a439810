"""Every kind and every edge extra on the GPU; `sparse_general.py` has the same loops for the CPU.

Tiles are (heads, edges, features), see `sparse_additive_triton.py`. Edge inputs come in three ways: absent
(0), shared by all heads (1), or one for each head (2).
"""

from __future__ import annotations

import triton
import triton.language as tl

from .rows_triton import head_keys, hub_at, kept, slots_of


@triton.jit
def vectors(array, node, h, c, ok, H: tl.constexpr, C: tl.constexpr, ACC: tl.constexpr):
    """(heads, edges, C) of a (nodes, H, C) array."""
    place = (node * (H * C))[None, :, None] + (h * C)[:, None, None] + c[None, None, :]
    there = ok[None, :, None] & (h < H)[:, None, None] & (c < C)[None, None, :]
    return tl.load(array + place, mask=there, other=0).to(ACC)


@triton.jit
def vector(array, node, h, c, H: tl.constexpr, C: tl.constexpr, ACC: tl.constexpr):
    """(heads, 1, C) of one node."""
    place = node * (H * C) + (h * C)[:, None] + c[None, :]
    there = (h < H)[:, None] & (c < C)[None, :]
    return tl.load(array + place, mask=there, other=0).to(ACC)[:, None, :]


@triton.jit
def edge_numbers(array, e, h, ok, H: tl.constexpr, HOW: tl.constexpr, ACC: tl.constexpr):
    """(heads, edges) of an (edges, 1 or H) array."""
    if HOW == 1:
        place = e[None, :] + (h * 0)[:, None]
    else:
        place = (e * H)[None, :] + h[:, None]
    return tl.load(array + place, mask=ok[None, :] & (h < H)[:, None], other=0).to(ACC)


@triton.jit
def edge_vectors(array, e, h, c, ok, H: tl.constexpr, C: tl.constexpr, HOW: tl.constexpr, ACC: tl.constexpr):
    """(heads, edges, C) of an (edges, 1 or H, C) array."""
    if HOW == 1:
        heard = vectors(array, e, h * 0, c, ok, 1, C, ACC)
    else:
        heard = vectors(array, e, h, c, ok, H, C, ACC)
    return heard


@triton.jit
def store_edge_numbers(array, e, h, ok, x, H: tl.constexpr, HOW: tl.constexpr):
    """Heads that share an edge input add up in its one slot."""
    if HOW == 1:
        x = tl.where((h < H)[:, None], x, 0.0)
        tl.store(array + e, tl.sum(x, 0).to(array.dtype.element_ty), mask=ok)
    else:
        place = (e * H)[None, :] + h[:, None]
        tl.store(array + place, x.to(array.dtype.element_ty), mask=ok[None, :] & (h < H)[:, None])


@triton.jit
def store_edge_vectors(array, e, h, c, ok, x, H: tl.constexpr, C: tl.constexpr, HOW: tl.constexpr):
    if HOW == 1:
        x = tl.where((h < H)[:, None, None], x, 0.0)
        place = (e * C)[:, None] + c[None, :]
        there = ok[:, None] & (c < C)[None, :]
        tl.store(array + place, tl.sum(x, 0).to(array.dtype.element_ty), mask=there)
    else:
        place = (e * (H * C))[None, :, None] + (h * C)[:, None, None] + c[None, None, :]
        there = ok[None, :, None] & (h < H)[:, None, None] & (c < C)[None, None, :]
        tl.store(array + place, x.to(array.dtype.element_ty), mask=there)


@triton.jit
def over_edges(x, LANES: tl.constexpr):
    """The sum of a tile over its edges; what LANES threads have summed stays apart until the row is done."""
    H: tl.constexpr = x.shape[0]
    T: tl.constexpr = x.shape[1] // LANES
    D: tl.constexpr = x.shape[2]
    return tl.sum(tl.reshape(x, (H, T, LANES, D)), 1)


@triton.jit
def leaky(x, SLOPE: tl.constexpr):
    return tl.where(x > 0, x, x * SLOPE)


@triton.jit
def power(x, TIMES: tl.constexpr):
    """x^TIMES by multiplication: exact signs, and 0⁰ is 1."""
    result = tl.full(x.shape, 1.0, x.dtype)
    for _ in tl.static_range(TIMES):
        result *= x
    return result


@triton.jit
def scores(
    x, y, a, e, bias, weight, h, ok,
    KIND: tl.constexpr, H: tl.constexpr, SLOPE: tl.constexpr, DEGREE: tl.constexpr, BIAS: tl.constexpr,
    WEIGHT: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """(heads, edges) of what the formula compares, s, w, w·s and l; w·s is 0 where there is no edge."""
    nothing = tl.zeros((h.shape[0], ok.shape[0]), ACC)
    compared, similarity, logit = nothing, nothing + 1.0, nothing
    if KIND == "additive":
        compared = tl.sum(x + y, 2)
        logit = leaky(compared, SLOPE)
    elif KIND == "additive_v2":
        logit = tl.sum(a * leaky(x + y, SLOPE), 2)
    elif KIND == "dot":
        logit = tl.sum(x * y, 2)
    elif KIND == "power":
        compared = tl.sum(x * y, 2)
        similarity = power(compared, DEGREE)
    given = nothing + 1.0
    if WEIGHT:
        given = edge_numbers(weight, e, h, ok, H, WEIGHT, ACC)
    if BIAS:
        logit += edge_numbers(bias, e, h, ok, H, BIAS, ACC)
    base = tl.where(ok[None, :], similarity * given, 0.0)
    return compared, similarity, given, base, logit


@triton.jit
def dropped(
    keys, row, j, e, columns, THRESHOLD: tl.constexpr, SCALE: tl.constexpr, IMPLIED: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """(heads, edges) of what dropout multiplies the weights by."""
    if IMPLIED:
        counter = row.to(tl.int64) * columns + j
    else:
        counter = e
    return kept(keys[:, None], counter[None, :], THRESHOLD).to(ACC) * SCALE


@triton.jit
def change_of(
    x, y, a, compared, given, share, r, ds, ok,
    KIND: tl.constexpr, SLOPE: tl.constexpr, DEGREE: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """dL/d(x + y) where they are added; where they are multiplied, what multiplies the other."""
    if KIND == "additive":
        change = tl.where(compared > 0, ds, ds * SLOPE)[:, :, None]
    elif KIND == "additive_v2":
        change = ds[:, :, None] * a
        change = tl.where(x + y > 0, change, change * SLOPE)
    elif KIND == "power":
        # An edge of weight 0 is no part of the maximum: its share may be inf.
        change = share * r * power(compared, DEGREE - 1) * DEGREE * given
        change = tl.where((given != 0) & ok[None, :], change, 0.0)[:, :, None]
    else:
        change = ds[:, :, None]
    return change


@triton.jit(do_not_specialize=["rows", "edges", "pieces", "columns", "each"])
def forward(
    rowptr, col, edge, q, k, v, a, bias, weight, key, value, seeds, out, m, z, parts,
    rows, edges, pieces, columns, each,
    KIND: tl.constexpr, H: tl.constexpr, C: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr,
    KEYS: tl.constexpr, FEATURES: tl.constexpr, BLOCKS: tl.constexpr, TILE: tl.constexpr,
    KEY_LANES: tl.constexpr, LANES: tl.constexpr, SPLIT: tl.constexpr, ACC: tl.constexpr,
    WIDE: tl.constexpr, SLOPE: tl.constexpr,
    DEGREE: tl.constexpr, BIAS: tl.constexpr, WEIGHT: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, IMPLIED: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0) // BLOCKS
    row, low, high, mine = slots_of(program, rowptr, rows, edges, pieces, SPLIT, WIDE)
    if mine:
        h = tl.program_id(0) % BLOCKS * HEADS + tl.arange(0, HEADS)
        c, d = tl.arange(0, KEYS), tl.arange(0, FEATURES)
        keys = h
        if THRESHOLD > 0:
            keys = head_keys(seeds, tl.where(h < H, h, 0), each)
        x, factors = 0.0, 0.0
        if KIND != "uniform":
            x = vector(q, row, h, c, H, C, ACC)
        if KIND == "additive_v2":
            factors = vector(a, 0, h, c, H, C, ACC)
        top = tl.full((HEADS,), float("-inf"), ACC)
        total = tl.zeros((HEADS,), ACC)
        sum_ = tl.zeros((HEADS, LANES, FEATURES), ACC)
        for t in range(0, high - low, TILE):
            at = low + t + tl.arange(0, TILE)
            ok = at < high
            j, e = tl.load(col + at, mask=ok, other=0), tl.load(edge + at, mask=ok, other=0)
            if WIDE:
                j, e = j.to(tl.int64), e.to(tl.int64)
            y = 0.0
            if KIND != "uniform":
                y = vectors(k, j, h, c, ok, H, C, ACC)
                if KEY:
                    y += edge_vectors(key, e, h, c, ok, H, C, KEY, ACC)
            _, _, _, base, logit = scores(
                x, y, factors, e, bias, weight, h, ok, KIND, H, SLOPE, DEGREE, BIAS, WEIGHT, ACC
            )
            new = tl.maximum(top, tl.max(tl.where(base == 0, float("-inf"), logit), 1))
            shift = tl.where(new == float("-inf"), 0.0, new)
            less = tl.exp(top - shift)
            # Not base·exp: an edge of weight 0 is no part of the maximum, so its exp may be inf.
            p = tl.where(base == 0, 0.0, base * tl.exp(logit - shift[:, None]))
            top, total = new, total * less + tl.sum(p, 1)
            if THRESHOLD > 0:
                p *= dropped(keys, row, j, e, columns, THRESHOLD, SCALE, IMPLIED, ACC)
            said = vectors(v, j, h, d, ok, H, D, ACC)
            if VALUE:
                said += edge_vectors(value, e, h, d, ok, H, D, VALUE, ACC)
            sum_ = sum_ * less[:, None, None] + over_edges(p[:, :, None] * said, LANES)
        sum_ = tl.sum(sum_, 1)
        there = h < H
        place = (h * D)[:, None] + d[None, :]
        inside = there[:, None] & (d < D)[None, :]
        if program < pieces:
            part = parts + program.to(tl.int64) * (H * D + 2 * H)
            tl.store(part + place, sum_, mask=inside)
            tl.store(part + H * D + h, top, mask=there)
            tl.store(part + H * D + H + h, total, mask=there)
        else:
            finish(out, m, z, row, h, place, there, inside, sum_, top, total, H, D)


@triton.jit
def finish(out, m, z, row, h, place, there, inside, sum_, top, total, H: tl.constexpr, D: tl.constexpr):
    nobody = total == 0
    # Divided, not multiplied by 1/z: z may be so small that 1/z is inf.
    mean = tl.where(nobody[:, None], 0.0, sum_ / tl.where(nobody, 1.0, total)[:, None])
    tl.store(m + row * H + h, tl.where(top == float("-inf"), 0.0, top), mask=there)
    tl.store(z + row * H + h, total, mask=there)
    tl.store(out + row * (H * D) + place, mean.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows", "edges"])
def merge(
    rowptr, rows, edges, parts, out, m, z,
    H: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, FEATURES: tl.constexpr, SPLIT: tl.constexpr,
    TOGETHER: tl.constexpr,
):  # fmt: skip
    """A hub's output from its pieces, each of which has a maximum of its own."""
    row, begin, last, within, mine = hub_at(tl.program_id(0), rowptr, rows, edges, SPLIT)
    if mine:
        h, d = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, FEATURES)
        there = h < H
        place = (h * D)[:, None] + d[None, :]
        inside = there[:, None] & (d < D)[None, :]
        top = tl.full((HEADS,), float("-inf"), parts.dtype.element_ty)
        total = tl.zeros((HEADS,), parts.dtype.element_ty)
        sum_ = tl.zeros((HEADS, FEATURES), parts.dtype.element_ty)
        for chunk in range(begin, last + 1, TOGETHER):
            piece = chunk + tl.arange(0, TOGETHER)
            part = 2 * piece + ((piece == begin) & within).to(tl.int32)
            start = part.to(tl.int64) * (H * D + 2 * H)
            ok = there[:, None] & (piece <= last)[None, :]
            small = parts + start[None, :] + H * D + h[:, None]
            tops = tl.load(small, mask=ok, other=float("-inf"))
            new = tl.maximum(top, tl.max(tops, 1))
            shift = tl.where(new == float("-inf"), 0.0, new)
            less, factor = tl.exp(top - shift), tl.exp(tops - shift[:, None])
            top = new
            total = total * less + tl.sum(factor * tl.load(small + H, mask=ok, other=0), 1)
            ok = inside[:, None, :] & (piece <= last)[None, :, None]
            sums = tl.load(parts + start[None, :, None] + place[:, None, :], mask=ok, other=0)
            sum_ = sum_ * less[:, None] + tl.sum(factor[:, :, None] * sums, 1)
        finish(out, m, z, row, h, place, there, inside, sum_, top, total, H, D)


@triton.jit(do_not_specialize=["count"])
def listeners(
    rowptr, gradient, out, m, z, table, count,
    H: tl.constexpr, D: tl.constexpr, FEATURES: tl.constexpr, TILE: tl.constexpr, ACC: tl.constexpr,
    WIDE: tl.constexpr,
):  # fmt: skip
    """(m, z, D) a listener side by side for the two passes below; ∞ for a z of 0, which makes all shares 0,
    and for the D of a listener with one speaker, as in `sparse_general.row_dots`.
    """
    n, d = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.arange(0, FEATURES)
    if WIDE:
        n = n.to(tl.int64)
    there = n < count
    place, inside = n[:, None] * D + d[None, :], there[:, None] & (d < D)[None, :]
    g = tl.load(gradient + place, mask=inside, other=0).to(ACC)
    dot = tl.sum(g * tl.load(out + place, mask=inside, other=0).to(ACC), 1)
    total = tl.load(z + n, mask=there, other=0)
    at = table + n // H * (4 * H) + n % H
    tl.store(at, tl.load(m + n, mask=there, other=0), mask=there)
    tl.store(at + H, tl.where(total == 0, float("inf"), total), mask=there)
    degree = tl.load(rowptr + n // H + 1, mask=there, other=0) - tl.load(rowptr + n // H, mask=there, other=0)
    tl.store(at + 2 * H, tl.where(degree == 1, float("inf"), dot), mask=there)


@triton.jit
def unless_alone(r):
    """r = g·v − D, and 0 where D is ∞."""
    return tl.where(r == float("-inf"), 0.0, r)


@triton.jit(do_not_specialize=["rows", "edges", "pieces", "columns", "each"])
def row_gradients(
    rowptr, col, edge, q, k, v, a, bias, weight, key, value, seeds, gradient, table,
    dq, da, dbias, dweight, dkey, dvalue, parts, rows, edges, pieces, columns, each,
    KIND: tl.constexpr, H: tl.constexpr, C: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr,
    KEYS: tl.constexpr, FEATURES: tl.constexpr, BLOCKS: tl.constexpr, TILE: tl.constexpr,
    KEY_LANES: tl.constexpr, LANES: tl.constexpr, SPLIT: tl.constexpr, ACC: tl.constexpr,
    WIDE: tl.constexpr, SLOPE: tl.constexpr,
    DEGREE: tl.constexpr, BIAS: tl.constexpr, WEIGHT: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, IMPLIED: tl.constexpr,
    DQ: tl.constexpr, DA: tl.constexpr, DBIAS: tl.constexpr, DWEIGHT: tl.constexpr, DKEY: tl.constexpr,
    DVALUE: tl.constexpr,
):  # fmt: skip
    """Everything summed over a listener's edges (dq and its part of da), and everything of a single edge."""
    program = tl.program_id(0) // BLOCKS
    row, low, high, mine = slots_of(program, rowptr, rows, edges, pieces, SPLIT, WIDE)
    if mine:
        h = tl.program_id(0) % BLOCKS * HEADS + tl.arange(0, HEADS)
        c, d = tl.arange(0, KEYS), tl.arange(0, FEATURES)
        lane = tl.where(h < H, h, 0)
        keys = h
        if THRESHOLD > 0:
            keys = head_keys(seeds, lane, each)
        x, factors = 0.0, 0.0
        if KIND != "uniform":
            x = vector(q, row, h, c, H, C, ACC)
        if KIND == "additive_v2":
            factors = vector(a, 0, h, c, H, C, ACC)
        g = vector(gradient, row, h, d, H, D, ACC)
        numbers = table + row * (4 * H) + lane
        top, total, dot = tl.load(numbers), tl.load(numbers + H), tl.load(numbers + 2 * H)
        sum_q = tl.zeros((HEADS, KEY_LANES, KEYS), ACC)
        sum_a = tl.zeros((HEADS, KEY_LANES, KEYS), ACC)
        for t in range(0, high - low, TILE):
            at = low + t + tl.arange(0, TILE)
            ok = at < high
            j, e = tl.load(col + at, mask=ok, other=0), tl.load(edge + at, mask=ok, other=0)
            if WIDE:
                j, e = j.to(tl.int64), e.to(tl.int64)
            y = 0.0
            if KIND != "uniform":
                y = vectors(k, j, h, c, ok, H, C, ACC)
                if KEY:
                    y += edge_vectors(key, e, h, c, ok, H, C, KEY, ACC)
            compared, similarity, given, base, logit = scores(
                x, y, factors, e, bias, weight, h, ok, KIND, H, SLOPE, DEGREE, BIAS, WEIGHT, ACC
            )
            share = tl.exp(logit - top[:, None]) / total[:, None]
            p = tl.where(base == 0, 0.0, base * share)
            said = vectors(v, j, h, d, ok, H, D, ACC)
            if VALUE:
                said += edge_vectors(value, e, h, d, ok, H, D, VALUE, ACC)
            r, spoken = tl.sum(g * said, 2), p
            if THRESHOLD > 0:
                factor = dropped(keys, row, j, e, columns, THRESHOLD, SCALE, IMPLIED, ACC)
                r, spoken = r * factor, p * factor
            r = unless_alone(r - dot[:, None])
            ds = p * r
            if DBIAS:
                store_edge_numbers(dbias, e, h, ok, ds, H, DBIAS)
            if DWEIGHT:
                store_edge_numbers(dweight, e, h, ok, similarity * share * r, H, DWEIGHT)
            if DVALUE:
                store_edge_vectors(dvalue, e, h, d, ok, spoken[:, :, None] * g, H, D, DVALUE)
            if KIND != "uniform":
                change = change_of(x, y, factors, compared, given, share, r, ds, ok, KIND, SLOPE, DEGREE, ACC)
                if KIND == "dot" or KIND == "power":
                    sum_q += over_edges(change * y, KEY_LANES)
                    if DKEY:
                        store_edge_vectors(dkey, e, h, c, ok, change * x, H, C, DKEY)
                else:
                    sum_q += over_edges(change, KEY_LANES)
                    if DKEY:
                        store_edge_vectors(dkey, e, h, c, ok, change, H, C, DKEY)
                if DA:
                    sum_a += over_edges(ds[:, :, None] * leaky(x + y, SLOPE), KEY_LANES)
        sum_q, sum_a = tl.sum(sum_q, 1), tl.sum(sum_a, 1)
        place = (h * C)[:, None] + c[None, :]
        inside = (h < H)[:, None] & (c < C)[None, :]
        if program < pieces:
            part = parts + program.to(tl.int64) * ((DQ + DA) * H * C) + place
            if DQ:
                tl.store(part, sum_q, mask=inside)
            if DA:
                tl.store(part + DQ * H * C, sum_a, mask=inside)
        else:
            if DQ:
                tl.store(dq + row * (H * C) + place, sum_q.to(dq.dtype.element_ty), mask=inside)
            if DA:
                tl.store(da + row * (H * C) + place, sum_a, mask=inside)


@triton.jit(do_not_specialize=["rows", "edges", "pieces", "columns", "each"])
def column_gradients(
    colptr, row, edge, q, k, v, a, bias, weight, key, value, seeds, gradient, table, dk, dv, parts,
    rows, edges, pieces, columns, each,
    KIND: tl.constexpr, H: tl.constexpr, C: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr,
    KEYS: tl.constexpr, FEATURES: tl.constexpr, BLOCKS: tl.constexpr, TILE: tl.constexpr,
    KEY_LANES: tl.constexpr, LANES: tl.constexpr, SPLIT: tl.constexpr, ACC: tl.constexpr,
    WIDE: tl.constexpr, SLOPE: tl.constexpr,
    DEGREE: tl.constexpr, BIAS: tl.constexpr, WEIGHT: tl.constexpr, KEY: tl.constexpr, VALUE: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, IMPLIED: tl.constexpr,
    DK: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """dk and dv: everything summed over a speaker's edges, by the transpose."""
    program = tl.program_id(0) // BLOCKS
    j, low, high, mine = slots_of(program, colptr, rows, edges, pieces, SPLIT, WIDE)
    if mine:
        h = tl.program_id(0) % BLOCKS * HEADS + tl.arange(0, HEADS)
        c, d = tl.arange(0, KEYS), tl.arange(0, FEATURES)
        lane = tl.where(h < H, h, 0)
        keys = h
        if THRESHOLD > 0:
            keys = head_keys(seeds, lane, each)
        here, factors = 0.0, 0.0
        if KIND != "uniform":
            here = vector(k, j, h, c, H, C, ACC)
        if KIND == "additive_v2":
            factors = vector(a, 0, h, c, H, C, ACC)
        said = vector(v, j, h, d, H, D, ACC)
        sum_k = tl.zeros((HEADS, KEY_LANES, KEYS), ACC)
        sum_v = tl.zeros((HEADS, LANES, FEATURES), ACC)
        for t in range(0, high - low, TILE):
            at = low + t + tl.arange(0, TILE)
            ok = at < high
            i, e = tl.load(row + at, mask=ok, other=0), tl.load(edge + at, mask=ok, other=0)
            if WIDE:
                i, e = i.to(tl.int64), e.to(tl.int64)
            x, y = 0.0, 0.0
            if KIND != "uniform":
                x, y = vectors(q, i, h, c, ok, H, C, ACC), here
                if KEY:
                    y = here + edge_vectors(key, e, h, c, ok, H, C, KEY, ACC)
            compared, _, given, base, logit = scores(
                x, y, factors, e, bias, weight, h, ok, KIND, H, SLOPE, DEGREE, BIAS, WEIGHT, ACC
            )
            numbers = table + i[None, :] * (4 * H) + lane[:, None]
            top = tl.load(numbers, mask=ok[None, :], other=0)
            total = tl.load(numbers + H, mask=ok[None, :], other=1)
            share = tl.exp(logit - top) / total
            p = tl.where(base == 0, 0.0, base * share)
            g = vectors(gradient, i, h, d, ok, H, D, ACC)
            factor = 1.0
            if THRESHOLD > 0:
                factor = dropped(keys, i, j, e, columns, THRESHOLD, SCALE, IMPLIED, ACC)
            if DV:
                sum_v += over_edges((p * factor)[:, :, None] * g, LANES)
            if DK:
                if VALUE:
                    r = tl.sum(g * (said + edge_vectors(value, e, h, d, ok, H, D, VALUE, ACC)), 2)
                else:
                    r = tl.sum(g * said, 2)
                r = unless_alone(r * factor - tl.load(numbers + 2 * H, mask=ok[None, :], other=0))
                change = change_of(
                    x, y, factors, compared, given, share, r, p * r, ok, KIND, SLOPE, DEGREE, ACC
                )
                if KIND == "dot" or KIND == "power":
                    sum_k += over_edges(change * x, KEY_LANES)
                else:
                    sum_k += over_edges(change, KEY_LANES)
        sum_k, sum_v = tl.sum(sum_k, 1), tl.sum(sum_v, 1)
        place_k, place_v = (h * C)[:, None] + c[None, :], (h * D)[:, None] + d[None, :]
        inside_k = (h < H)[:, None] & (c < C)[None, :]
        inside_v = (h < H)[:, None] & (d < D)[None, :]
        if program < pieces:
            part = parts + program.to(tl.int64) * (DV * H * D + DK * H * C)
            if DV:
                tl.store(part + place_v, sum_v, mask=inside_v)
            if DK:
                tl.store(part + DV * H * D + place_k, sum_k, mask=inside_k)
        else:
            if DV:
                tl.store(dv + j * (H * D) + place_v, sum_v.to(dv.dtype.element_ty), mask=inside_v)
            if DK:
                tl.store(dk + j * (H * C) + place_k, sum_k.to(dk.dtype.element_ty), mask=inside_k)
