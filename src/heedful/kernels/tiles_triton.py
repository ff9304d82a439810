"""Any pairs by tiles on the GPU: a tile's weights are made, used and dropped, forward and backward.

    w_ij = sim(q_i, k_j) exp(p_{i−j}),   out_i = Σ_j w_ij v_j / z_i,   z_i = Σ_j w_ij

Four passes, none with atomics: `forward` takes a block of listeners through all they hear and keeps out, 1/z
and what was taken out of the exponents; `listeners` does so again for dq; `speakers` takes a block of
speakers through all who hear them for dk and dv; `offsets` goes along a diagonal of tiles, which all hold the
same offsets i−j, for the gradient of the table. With P = w / z and D_i = ⟨g_i, out_i⟩, L changes with
log w_ij by P_ij (⟨g_i, v_j⟩ − D_i).

A pattern that is an interval of i−j is one of numbers, low and high. Of any other, `tiles.Listing` names the
tiles that hold pairs, GRAIN by GRAIN, and has a bit for each pair of theirs.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .rows_triton import head_keys, kept


@triton.jit
def rows(x, n, here, D: tl.constexpr, DP: tl.constexpr):
    """(block, DP) of x; a single number a row stays one."""
    if DP == 1:
        found = tl.load(x + n, mask=here, other=0)[:, None]
    else:
        d = tl.arange(0, DP)
        found = tl.load(x + n[:, None] * D + d[None, :], mask=here[:, None] & (d < D)[None, :], other=0)
    return found


@triton.jit
def compared(
    left, right, constant, scale, KIND: tl.constexpr, SLOPE: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """What weighs a pair, (rows of left, rows of right): q·k times its scale, q·k + c, or leaky(q + k)."""
    if KIND == "uniform":
        found = tl.zeros((left.shape[0], right.shape[0]), tl.float32)
    elif KIND == "additive":
        found = left.to(tl.float32) + tl.trans(right).to(tl.float32)
        found = tl.where(found > 0, found, SLOPE * found)
    else:
        found = tl.dot(left, tl.trans(right), input_precision=PRECISION)
        if KIND == "dot":
            found *= scale
        else:
            found += constant
    return found


@triton.jit
def power(x, DEGREE: tl.constexpr):
    found = tl.full(x.shape, 1.0, tl.float32)
    for _ in tl.static_range(DEGREE):
        found *= x
    return found


@triton.jit
def heard(n, m, word, queries, keys, low, high, GRAIN: tl.constexpr, LISTED: tl.constexpr):
    """Which pairs count, for listeners n and speakers m that broadcast against each other."""
    offset = n + (keys - queries) - m
    found = (n < queries) & (m < keys)
    if LISTED:
        found = found & (((word >> (m % GRAIN)) & 1) != 0)
    else:
        found = found & (offset >= low) & (offset <= high)
    return found


@triton.jit
def placed(table, n, m, keys, allowed, BIASED: tl.constexpr):
    """p_{i−j}, −inf for pairs that do not count; without a position 0."""
    if BIASED:
        found = tl.load(table + (n + keys - 1 - m), mask=allowed, other=float("-inf"))
    else:
        found = tl.where(allowed, 0.0, float("-inf"))
    return found


@triton.jit
def weighed(base, bias, top, KIND: tl.constexpr, DEGREE: tl.constexpr):
    """w of each pair, with exp(top) taken out of it. A bias of −inf silences."""
    if KIND == "power":
        # A score may be anything where nobody listens.
        found = tl.where(bias > float("-inf"), power(base, DEGREE) * tl.exp(bias - top), 0.0)
    else:
        found = tl.exp(tl.where(bias > float("-inf"), base, 0.0) + bias - top)
    return found


@triton.jit
def pulled(base, bias, top, felt, KIND: tl.constexpr, DEGREE: tl.constexpr, SLOPE: tl.constexpr):
    """How L changes with q·k or q + k; `felt` is how it changes with w."""
    if KIND == "power":
        slope = tl.where(bias > float("-inf"), power(base, DEGREE - 1) * tl.exp(bias - top), 0.0)
        found = DEGREE * slope * felt
    else:
        found = weighed(base, bias, top, KIND, DEGREE) * felt
        if KIND == "additive":
            found = tl.where(base > 0, found, SLOPE * found)
    return found


@triton.jit
def surviving(
    keys_hash, n, m, keys, DROPPED: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr
):  # fmt: skip
    """What dropout multiplies weights by."""
    if DROPPED:
        counter = n.to(tl.int64) * keys + m
        found = tl.where(kept(keys_hash, counter, THRESHOLD), SCALE, 0.0)
    else:
        found = 1.0
    return found


@triton.jit
def span_of_speakers(block, queries, keys, low, high, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """The first tile of keys that a block of listeners may hear, and the one behind the last."""
    first = block * BLOCK + keys - queries
    last = tl.minimum(block * BLOCK + BLOCK, queries) - 1 + keys - queries
    return tl.maximum(first - high, 0) // STEP, (tl.minimum(keys, last - low + 1) + STEP - 1) // STEP


@triton.jit
def span_of_listeners(block, queries, keys, low, high, BLOCK: tl.constexpr, STEP: tl.constexpr):
    first = block * BLOCK - (keys - queries)
    last = tl.minimum(block * BLOCK + BLOCK, keys) - 1 - (keys - queries)
    return tl.maximum(first + low, 0) // STEP, (tl.minimum(queries, last + high + 1) + STEP - 1) // STEP


@triton.jit
def listed_span(block, starts, BLOCK: tl.constexpr, STEP: tl.constexpr, GRAIN: tl.constexpr):
    entry = starts + block * BLOCK // GRAIN
    return tl.load(entry) * (GRAIN // STEP), tl.load(entry + 1) * (GRAIN // STEP)


@triton.jit
def tile_at(t, others, which, STEP: tl.constexpr, GRAIN: tl.constexpr, LISTED: tl.constexpr):
    """Of the t-th part: where it begins, and the listing's tile that it lies in."""
    tile = t * 0
    if LISTED:
        SUB: tl.constexpr = GRAIN // STEP
        tile = tl.load(which + t // SUB)
        start = tl.load(others + t // SUB) * GRAIN + t % SUB * STEP
    else:
        start = t * STEP
    return start, tile


@triton.jit(do_not_specialize=["queries", "keys", "low", "high", "heads", "table_step", "scale"])
def forward(
    q, k, v, constants, table, starts, others, which, bits, seeds, out, tops, totals,
    queries, keys, low, high, heads, table_step, scale,
    D: tl.constexpr, E: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr, KIND: tl.constexpr,
    DEGREE: tl.constexpr, SLOPE: tl.constexpr, CONSTANT: tl.constexpr, BIASED: tl.constexpr,
    LISTED: tl.constexpr, DROPPED: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
    GRAIN: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    # The last have most to hear, where only the past is heard.
    block, row = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)
    q, k, v = q + row * queries * D, k + row * keys * D, v + row * keys * E
    table += row % heads * table_step
    n = block * BLOCK + tl.arange(0, BLOCK)
    here = n < queries
    qt = rows(q, n, here, D, DP)
    constant = 0.0
    if CONSTANT:
        constant = tl.load(constants + row * queries + n, mask=here, other=0)[:, None]
    keys_hash = row
    if DROPPED:
        keys_hash = head_keys(seeds, row, tl.num_programs(1))
    if LISTED:
        first, stop = listed_span(block, starts, BLOCK, STEP, GRAIN)
    else:
        first, stop = span_of_speakers(block, queries, keys, low, high, BLOCK, STEP)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    said = tl.zeros((BLOCK, EP), tl.float32)
    for t in range(first, stop):
        start, tile = tile_at(t, others, which, STEP, GRAIN, LISTED)
        m = start + tl.arange(0, STEP)
        there = m < keys
        word = n
        if LISTED:
            word = tl.load(bits + tile.to(tl.int64) * GRAIN + n % GRAIN)
        allowed = heard(n[:, None], m[None, :], word[:, None], queries, keys, low, high, GRAIN, LISTED)
        bias = placed(table, n[:, None], m[None, :], keys, allowed, BIASED)
        kt, vt = rows(k, m, there, D, DP), rows(v, m, there, E, EP)
        base = compared(qt, kt, constant, scale, KIND, SLOPE, PRECISION)
        if KIND == "power":
            highest = bias
        else:
            highest = tl.where(bias > float("-inf"), base, 0.0) + bias
        above = tl.maximum(top, tl.max(highest, 1))
        shift = tl.where(above == float("-inf"), 0.0, above)
        fade = tl.exp(top - shift)
        # As they are multiplied, so are they added up: who hears one speaker hears it whole.
        narrow = weighed(base, bias, shift[:, None], KIND, DEGREE).to(vt.dtype)
        weight = narrow.to(tl.float32)
        total = total * fade + tl.sum(weight, 1)
        if DROPPED:
            survives = surviving(keys_hash, n[:, None], m[None, :], keys, DROPPED, THRESHOLD, SCALE)
            narrow = (weight * survives).to(vt.dtype)
        said = tl.dot(narrow, vt, said * fade[:, None], input_precision=PRECISION)
        top = above
    nobody = total == 0
    said = tl.where(nobody[:, None], 0.0, said / tl.where(nobody, 1.0, total)[:, None])
    e = tl.arange(0, EP)
    place = row * queries * E + n[:, None] * E + e[None, :]
    tl.store(out + place, said.to(out.dtype.element_ty), mask=here[:, None] & (e < E)[None, :])
    tl.store(tops + row * queries + n, tl.where(top == float("-inf"), 0.0, top), mask=here)
    tl.store(totals + row * queries + n, tl.where(nobody, 0.0, 1 / tl.where(nobody, 1.0, total)), mask=here)


@triton.jit(do_not_specialize=["queries", "keys", "low", "high", "heads", "table_step", "scale"])
def listeners(
    q, k, v, constants, table, starts, others, which, bits, seeds, gradient, tops, inverses, means, dq,
    queries, keys, low, high, heads, table_step, scale,
    D: tl.constexpr, E: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr, KIND: tl.constexpr,
    DEGREE: tl.constexpr, SLOPE: tl.constexpr, CONSTANT: tl.constexpr, BIASED: tl.constexpr,
    LISTED: tl.constexpr, DROPPED: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
    GRAIN: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, row = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)
    q, k, v = q + row * queries * D, k + row * keys * D, v + row * keys * E
    table += row % heads * table_step
    n = block * BLOCK + tl.arange(0, BLOCK)
    here = n < queries
    qt, gt = rows(q, n, here, D, DP), rows(gradient + row * queries * E, n, here, E, EP)
    top = tl.load(tops + row * queries + n, mask=here, other=0)[:, None]
    inverse = tl.load(inverses + row * queries + n, mask=here, other=0)[:, None]
    mean = tl.load(means + row * queries + n, mask=here, other=0)[:, None]
    constant = 0.0
    if CONSTANT:
        constant = tl.load(constants + row * queries + n, mask=here, other=0)[:, None]
    keys_hash = row
    if DROPPED:
        keys_hash = head_keys(seeds, row, tl.num_programs(1))
    if LISTED:
        first, stop = listed_span(block, starts, BLOCK, STEP, GRAIN)
    else:
        first, stop = span_of_speakers(block, queries, keys, low, high, BLOCK, STEP)
    total = tl.zeros((BLOCK, DP), tl.float32)
    for t in range(first, stop):
        start, tile = tile_at(t, others, which, STEP, GRAIN, LISTED)
        m = start + tl.arange(0, STEP)
        there = m < keys
        word = n
        if LISTED:
            word = tl.load(bits + tile.to(tl.int64) * GRAIN + n % GRAIN)
        allowed = heard(n[:, None], m[None, :], word[:, None], queries, keys, low, high, GRAIN, LISTED)
        bias = placed(table, n[:, None], m[None, :], keys, allowed, BIASED)
        kt, vt = rows(k, m, there, D, DP), rows(v, m, there, E, EP)
        base = compared(qt, kt, constant, scale, KIND, SLOPE, PRECISION)
        survives = surviving(keys_hash, n[:, None], m[None, :], keys, DROPPED, THRESHOLD, SCALE)
        felt = (tl.dot(gt, tl.trans(vt), input_precision=PRECISION) * survives - mean) * inverse
        change = pulled(base, bias, top, felt, KIND, DEGREE, SLOPE)
        if KIND == "additive":
            total += tl.sum(change, 1)[:, None]
        else:
            total = tl.dot(change.to(kt.dtype), kt, total, input_precision=PRECISION)
    if KIND == "dot":
        total *= scale
    d = tl.arange(0, DP)
    place = row * queries * D + n[:, None] * D + d[None, :]
    tl.store(dq + place, total.to(dq.dtype.element_ty), mask=here[:, None] & (d < D)[None, :])


@triton.jit(do_not_specialize=["queries", "keys", "low", "high", "heads", "table_step", "scale"])
def speakers(
    q, k, v, constants, table, starts, others, which, bits, seeds, gradient, tops, inverses, means, dk, dv,
    queries, keys, low, high, heads, table_step, scale,
    D: tl.constexpr, E: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr, KIND: tl.constexpr,
    DEGREE: tl.constexpr, SLOPE: tl.constexpr, CONSTANT: tl.constexpr, BIASED: tl.constexpr,
    LISTED: tl.constexpr, DROPPED: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
    GRAIN: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Tiles are turned around: a row is a speaker."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    q, k, v = q + row * queries * D, k + row * keys * D, v + row * keys * E
    gradient, constants = gradient + row * queries * E, constants + row * queries
    tops, inverses, means = tops + row * queries, inverses + row * queries, means + row * queries
    table += row % heads * table_step
    m = block * BLOCK + tl.arange(0, BLOCK)
    there = m < keys
    kt, vt = rows(k, m, there, D, DP), rows(v, m, there, E, EP)
    keys_hash = row
    if DROPPED:
        keys_hash = head_keys(seeds, row, tl.num_programs(1))
    if LISTED:
        first, stop = listed_span(block, starts, BLOCK, STEP, GRAIN)
    else:
        first, stop = span_of_listeners(block, queries, keys, low, high, BLOCK, STEP)
    asked = tl.zeros((BLOCK, DP), tl.float32)
    heeded = tl.zeros((BLOCK, EP), tl.float32)
    for t in range(first, stop):
        start, tile = tile_at(t, others, which, STEP, GRAIN, LISTED)
        n = start + tl.arange(0, STEP)
        here = n < queries
        word = n
        if LISTED:
            word = tl.load(bits + tile.to(tl.int64) * GRAIN + n % GRAIN)
        allowed = heard(n[None, :], m[:, None], word[None, :], queries, keys, low, high, GRAIN, LISTED)
        bias = placed(table, n[None, :], m[:, None], keys, allowed, BIASED)
        qt, gt = rows(q, n, here, D, DP), rows(gradient, n, here, E, EP)
        top = tl.load(tops + n, mask=here, other=0)[None, :]
        inverse = tl.load(inverses + n, mask=here, other=0)[None, :]
        mean = tl.load(means + n, mask=here, other=0)[None, :]
        constant = 0.0
        if CONSTANT:
            constant = tl.load(constants + n, mask=here, other=0)[None, :]
        base = compared(kt, qt, constant, scale, KIND, SLOPE, PRECISION)
        survives = surviving(keys_hash, n[None, :], m[:, None], keys, DROPPED, THRESHOLD, SCALE)
        share = weighed(base, bias, top, KIND, DEGREE) * inverse
        heeded = tl.dot((share * survives).to(gt.dtype), gt, heeded, input_precision=PRECISION)
        if KIND != "uniform":
            felt = (tl.dot(vt, tl.trans(gt), input_precision=PRECISION) * survives - mean) * inverse
            change = pulled(base, bias, top, felt, KIND, DEGREE, SLOPE)
            if KIND == "additive":
                asked += tl.sum(change, 1)[:, None]
            else:
                asked = tl.dot(change.to(qt.dtype), qt, asked, input_precision=PRECISION)
    d, e = tl.arange(0, DP), tl.arange(0, EP)
    if KIND != "uniform":
        if KIND == "dot":
            asked *= scale
        place = row * keys * D + m[:, None] * D + d[None, :]
        tl.store(dk + place, asked.to(dk.dtype.element_ty), mask=there[:, None] & (d < D)[None, :])
    place = row * keys * E + m[:, None] * E + e[None, :]
    tl.store(dv + place, heeded.to(dv.dtype.element_ty), mask=there[:, None] & (e < E)[None, :])


@triton.jit(do_not_specialize=["queries", "keys", "low", "high", "heads", "table_step", "scale"])
def offsets(
    q, k, v, constants, table, grid, bits, seeds, gradient, tops, inverses, means, found,
    queries, keys, low, high, heads, table_step, scale,
    D: tl.constexpr, E: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr, KIND: tl.constexpr,
    DEGREE: tl.constexpr, SLOPE: tl.constexpr, CONSTANT: tl.constexpr, BIASED: tl.constexpr,
    LISTED: tl.constexpr, DROPPED: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
    GRAIN: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The sum over a diagonal of tiles of how L changes with p, (block, block), columns turned around.

    `grid` says which of the listing's tiles lies where; an empty one is all zeros.
    """
    diagonal, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    q, k, v = q + row * queries * D, k + row * keys * D, v + row * keys * E
    gradient, constants = gradient + row * queries * E, constants + row * queries
    tops, inverses, means = tops + row * queries, inverses + row * queries, means + row * queries
    table += row % heads * table_step
    keys_hash = row
    if DROPPED:
        keys_hash = head_keys(seeds, row, tl.num_programs(1))
    tiles_down, tiles_across = (queries + BLOCK - 1) // BLOCK, (keys + BLOCK - 1) // BLOCK
    ahead = diagonal - (tiles_across - 1)  # listeners' tile less speakers'
    first, stop = tl.maximum(ahead, 0), tl.minimum(tiles_down, tiles_across + ahead)
    if not LISTED:  # all offsets of the diagonal may lie outside
        near = ahead * BLOCK + (keys - queries) - (BLOCK - 1)
        if (near > high) | (near + 2 * (BLOCK - 1) < low):
            stop = first
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for t in range(first, stop):
        n, m = t * BLOCK + tl.arange(0, BLOCK), (t - ahead) * BLOCK + tl.arange(0, BLOCK)
        here, there = n < queries, m < keys
        word = n
        if LISTED:
            SUB: tl.constexpr = GRAIN // BLOCK
            across = (keys + GRAIN - 1) // GRAIN
            tile = tl.load(grid + (t // SUB) * across + (t - ahead) // SUB)
            word = tl.load(bits + tile.to(tl.int64) * GRAIN + n % GRAIN)
        allowed = heard(n[:, None], m[None, :], word[:, None], queries, keys, low, high, GRAIN, LISTED)
        bias = placed(table, n[:, None], m[None, :], keys, allowed, BIASED)
        kt, vt = rows(k, m, there, D, DP), rows(v, m, there, E, EP)
        qt, gt = rows(q, n, here, D, DP), rows(gradient, n, here, E, EP)
        top = tl.load(tops + n, mask=here, other=0)[:, None]
        inverse = tl.load(inverses + n, mask=here, other=0)[:, None]
        mean = tl.load(means + n, mask=here, other=0)[:, None]
        constant = 0.0
        if CONSTANT:
            constant = tl.load(constants + n, mask=here, other=0)[:, None]
        base = compared(qt, kt, constant, scale, KIND, SLOPE, PRECISION)
        survives = surviving(keys_hash, n[:, None], m[None, :], keys, DROPPED, THRESHOLD, SCALE)
        felt = (tl.dot(gt, tl.trans(vt), input_precision=PRECISION) * survives - mean) * inverse
        total += weighed(base, bias, top, KIND, DEGREE) * felt
    b = tl.arange(0, BLOCK)
    place = (row * tl.num_programs(0) + diagonal) * (BLOCK * BLOCK)
    tl.store(found + place + b[:, None] * BLOCK + (BLOCK - 1 - b)[None, :], total)
