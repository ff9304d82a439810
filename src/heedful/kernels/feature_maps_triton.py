"""φ(q)·φ(k) on the GPU, with φ made in registers and never stored: the passes over positions.

    moments   S_f = Σ_n φ_f(x_n) y_n,  z_f = Σ_n φ_f(x_n) h_n      a span of positions, in a fixed order
    carry     S of all spans before each (or after), decayed
    apply     out_n = Σ_f φ_f(x_n) S_f,  den_n = Σ_f φ_f(x_n) z_f
    pull      dx_n = ∂/∂x_n (Σ_f φ_f(x_n) (S_f·y_n + z_f h_n))
    step      S ← keep·S + φ(k) [v, 1]ᵀ, out = φ(q)·S              one new token: decoding

x are queries or keys, `other` the opposite. Over the past, S is that of other spans and pairs inside a span
are taken one by one; a pair at distance t weighs exp(−rate·t). Features come GROUP at a time. What KIND says:

    given         φ(x) = x: features somebody else has made
    elu           φ(x) = elu(x) + 1
    exponential   φ_f(k) = exp(k·w_f − c_f − s),  s = half·|k|²
                  φ_f(q) = exp(q·w_f + c_f − s),  s = the largest such exponent of the row
    square        φ_ab(x) = x_a x_b, for `step` alone (`quadratic_triton.py` has the rest)

A state is S, (features, values) with both rounded up, and behind it z. Products are of float32, but for
exponents of half-precision x: those are exact, so w in two parts of their type, added up, is all it takes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .quadratic_triton import numbers
from .quadratic_triton import rows as stored


@triton.jit
def rows(x, n, here, d, D: tl.constexpr):
    return stored(x, n, here, d, D).to(tl.float32)


@triton.jit
def exponents(
    xt, f, w, taken, D: tl.constexpr, DP: tl.constexpr, F: tl.constexpr, QUERIES: tl.constexpr
):  # fmt: skip
    """x·w_f ± c_f, (positions, features); −inf beyond the last."""
    d = tl.arange(0, DP)
    half = tl.load(taken + f, mask=f < F, other=0)
    wt = tl.trans(stored(w, f, f < F, d, D))
    if xt.dtype == tl.float32:
        found = tl.dot(xt, wt, input_precision="tf32x3")
    else:
        coarse = wt.to(xt.dtype)
        found = tl.dot(xt, (wt - coarse.to(tl.float32)).to(xt.dtype))
        found = tl.dot(xt, coarse, found)
    if QUERIES:
        found += half[None, :]
    else:
        found -= half[None, :]
    return tl.where((f < F)[None, :], found, float("-inf"))


@triton.jit
def features(
    x, xt, n, here, shift, f, w, taken,
    D: tl.constexpr, DP: tl.constexpr, F: tl.constexpr, KIND: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """φ_f(x_n), (positions, features); 0 beyond either's last."""
    if KIND == "exponential":
        found = tl.exp(exponents(xt, f, w, taken, D, DP, F, QUERIES) - shift[:, None])
    else:
        found = rows(x, n, here, f, D)
        if KIND == "elu":
            found = tl.where(found > 0, found + 1, tl.exp(tl.minimum(found, 0.0)))
    return tl.where(here[:, None] & (f < F)[None, :], found, 0.0)


@triton.jit
def shifts(xt, tops, n, here, half, KIND: tl.constexpr, QUERIES: tl.constexpr):
    """What is taken from a row's exponents."""
    found = tl.zeros((xt.shape[0],), tl.float32)
    if KIND == "exponential":
        if QUERIES:
            found = tl.load(tops + n, mask=here, other=0)
        else:
            wide = xt.to(tl.float32)
            found = half * tl.sum(wide * wide, 1)
    return found


@triton.jit
def weighed(score, n, j, there, rate, DECAY: tl.constexpr, QUERIES: tl.constexpr):
    """Pairs (n, j) of a span: decayed, 0 where the listener among them comes first."""
    if QUERIES:
        distance = n[:, None] - j[None, :]
    else:
        distance = j[None, :] - n[:, None]
    if DECAY:
        score = score * tl.exp(-rate * tl.maximum(distance, 0).to(tl.float32))
    return tl.where((distance >= 0) & there[None, :], score, 0.0)


@triton.jit
def faded(n, split, span, rate, QUERIES: tl.constexpr):
    """How much of what lies in other spans arrives: n counts from its span's edge."""
    if QUERIES:
        distance = n - split * span + 1
    else:
        distance = split * span + span - n
    return tl.exp(-rate * distance.to(tl.float32))


@triton.jit(do_not_specialize=["length", "span", "splits"])
def moments(
    x, y, h, tops, w, taken, rates, states, half, length, span, splits,
    D: tl.constexpr, E: tl.constexpr, F: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr,
    GROUP: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr, QUERIES: tl.constexpr,
    DECAY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    group, split, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    f, d, e = group * GROUP + tl.arange(0, GROUP), tl.arange(0, DP), tl.arange(0, EP)
    x, y, h, tops = x + batch * length * D, y + batch * length * E, h + batch * length, tops + batch * length
    total = tl.zeros((GROUP, EP), tl.float32)
    mass = tl.zeros((GROUP,), tl.float32)
    stop = tl.minimum(split * span + span, length)
    for start in range(split * span, stop, BLOCK):
        n = start + tl.arange(0, BLOCK)
        here = n < stop
        xt = stored(x, n, here, d, D)
        phi = features(
            x, xt, n, here, shifts(xt, tops, n, here, half, KIND, QUERIES), f, w, taken,
            D, DP, F, KIND, QUERIES,
        )  # fmt: skip
        if DECAY:  # to the edge at which others will listen
            rate = tl.load(rates + batch)
            distance = n - split * span if QUERIES else split * span + span - 1 - n
            phi = phi * tl.where(here, tl.exp(-rate * distance.to(tl.float32)), 0.0)[:, None]
        total = tl.dot(tl.trans(phi), rows(y, n, here, e, E), total, input_precision=PRECISION)
        mass += tl.sum(phi * numbers(h, n, here, QUERIES)[:, None], 0)
    wide = tl.num_programs(0) * GROUP
    states += (batch * splits + split) * (wide * (EP + 1))
    tl.store(states + f[:, None] * EP + e[None, :], total)
    tl.store(states + wide * EP + f, mass)


@triton.jit(do_not_specialize=["size", "span", "splits"])
def carry(
    states, rates, size, span, splits,
    BACKWARD: tl.constexpr, DECAY: tl.constexpr, TIMES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each span's state gives way to the sum of all before it (BACKWARD: after it), TIMES spans at a time."""
    at, batch = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1).to(tl.int64)
    rate = 0.0
    if DECAY:
        rate = tl.load(rates + batch) * span
    t = tl.arange(0, TIMES)
    gap = t[:, None] - 1 - t[None, :]
    earlier = tl.where(gap >= 0, tl.exp(-rate * tl.maximum(gap, 0).to(tl.float32)), 0.0)
    since = tl.exp(-rate * t.to(tl.float32))
    until = tl.exp(-rate * (TIMES - 1 - t).to(tl.float32))
    before = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, splits, TIMES):
        place = start + t
        inside = (place < splits)[:, None] & (at < size)[None, :]
        if BACKWARD:
            place = splits - 1 - place
        where = states + (batch * splits + place)[:, None] * size + at[None, :]
        found = tl.load(where, mask=inside, other=0)
        carried = tl.dot(earlier, found, input_precision="ieee") + since[:, None] * before[None, :]
        tl.store(where, carried, mask=inside)
        before = before * tl.exp(-rate * TIMES) + tl.sum(found * until[:, None], 0)


@triton.jit(do_not_specialize=["length", "span", "splits"])
def apply(
    x, tops, other, other_tops, said, w, taken, rates, states, out, den, half, length, span, splits,
    D: tl.constexpr, E: tl.constexpr, F: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr,
    QUERIES: tl.constexpr, CAUSAL: tl.constexpr, DECAY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Queries divide by their weight, and leave it in `den` with the largest exponent in `tops`."""
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    d, e, g = tl.arange(0, DP), tl.arange(0, EP), tl.arange(0, GROUP)
    x, out = x + batch * length * D, out + batch * length * E
    den, tops = den + batch * length, tops + batch * length
    n = block * BLOCK + tl.arange(0, BLOCK)
    here = n < length
    split = 0
    rate = 0.0
    if CAUSAL:
        split = block * BLOCK // span
        if DECAY:
            rate = tl.load(rates + batch)
    states += (batch * splits + split) * (GROUPS * GROUP * (EP + 1))
    xt = stored(x, n, here, d, D)
    total = tl.zeros((BLOCK, EP), tl.float32)
    weight = tl.zeros((BLOCK,), tl.float32)
    if KIND == "exponential" and QUERIES:
        shift = tl.full((BLOCK,), float("-inf"), tl.float32)
    else:
        shift = shifts(xt, tops, n, here, half, KIND, QUERIES)
    for group in range(0, GROUPS):
        f = group * GROUP + g
        if KIND == "exponential" and QUERIES:
            # The largest exponent is not known before the last: what was summed is scaled as it grows.
            found = exponents(xt, f, w, taken, D, DP, F, QUERIES)
            top = tl.maximum(shift, tl.max(found, 1))
            less = tl.exp(shift - top)
            total, weight, shift = total * less[:, None], weight * less, top
            phi = tl.where(here[:, None], tl.exp(found - top[:, None]), 0.0)
        else:
            phi = features(x, xt, n, here, shift, f, w, taken, D, DP, F, KIND, QUERIES)
        s = tl.load(states + f[:, None] * EP + e[None, :])
        total = tl.dot(phi, s, total, input_precision=PRECISION)
        weight += tl.sum(phi * tl.load(states + GROUPS * GROUP * EP + f)[None, :], 1)
    if KIND == "exponential" and QUERIES:
        tl.store(tops + n, shift, mask=here)
    if CAUSAL:
        if DECAY:
            fade = faded(n, split, span, rate, QUERIES)
            total, weight = total * fade[:, None], weight * fade
        other, said = other + batch * length * D, said + batch * length * E
        other_tops += batch * length
        low, high = split * span, tl.minimum(split * span + span, length)
        if QUERIES:
            high = tl.minimum(high, block * BLOCK + BLOCK)
        else:
            low = block * BLOCK
        for start in range(low, high, BLOCK):
            j = start + tl.arange(0, BLOCK)
            there = j < high
            ot = stored(other, j, there, d, D)
            ashift = shifts(ot, other_tops, j, there, half, KIND, not QUERIES)
            score = tl.zeros((BLOCK, BLOCK), tl.float32)
            for group in range(0, GROUPS):
                f = group * GROUP + g
                phi = features(x, xt, n, here, shift, f, w, taken, D, DP, F, KIND, QUERIES)
                heard = features(other, ot, j, there, ashift, f, w, taken, D, DP, F, KIND, not QUERIES)
                score = tl.dot(phi, tl.trans(heard), score, input_precision=PRECISION)
            score = weighed(score, n, j, there, rate, DECAY, QUERIES)
            weight += tl.sum(score, 1)
            total = tl.dot(score, rows(said, j, there, e, E), total, input_precision=PRECISION)
    if QUERIES:
        nobody = weight == 0
        total = tl.where(nobody[:, None], 0.0, total / tl.where(nobody, 1.0, weight)[:, None])
        tl.store(den + n, weight, mask=here)
    inside = here[:, None] & (e < E)[None, :]
    tl.store(out + n[:, None] * E + e[None, :], total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["length", "span", "splits"])
def pull(
    x, y, h, tops, other, said, other_h, other_tops, w, taken, rates, states, dx, half, length, span, splits,
    D: tl.constexpr, E: tl.constexpr, F: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, BLOCK: tl.constexpr, KIND: tl.constexpr,
    QUERIES: tl.constexpr, CAUSAL: tl.constexpr, DECAY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    d, e, g = tl.arange(0, DP), tl.arange(0, EP), tl.arange(0, GROUP)
    x, y, dx = x + batch * length * D, y + batch * length * E, dx + batch * length * D
    h, tops = h + batch * length, tops + batch * length
    other, said = other + batch * length * D, said + batch * length * E
    other_h, other_tops = other_h + batch * length, other_tops + batch * length
    n = block * BLOCK + tl.arange(0, BLOCK)
    here = n < length
    split = 0
    rate = 0.0
    low = 0
    high = 0
    if CAUSAL:
        split = block * BLOCK // span
        low, high = split * span, tl.minimum(split * span + span, length)
        if QUERIES:
            high = tl.minimum(high, block * BLOCK + BLOCK)
        else:
            low = block * BLOCK
        if DECAY:
            rate = tl.load(rates + batch)
    states += (batch * splits + split) * (GROUPS * GROUP * (EP + 1))
    xt, yt, hn = stored(x, n, here, d, D), rows(y, n, here, e, E), numbers(h, n, here, QUERIES)
    shift = shifts(xt, tops, n, here, half, KIND, QUERIES)
    total = tl.zeros((BLOCK, DP), tl.float32)
    felt = tl.zeros((BLOCK,), tl.float32)
    for group in range(0, GROUPS):
        f = group * GROUP + g
        s = tl.load(states + f[:, None] * EP + e[None, :])
        z = tl.load(states + GROUPS * GROUP * EP + f)
        change = tl.dot(yt, tl.trans(s), input_precision=PRECISION) + hn[:, None] * z[None, :]
        if CAUSAL:
            if DECAY:
                change *= faded(n, split, span, rate, QUERIES)[:, None]
            for start in range(low, high, BLOCK):
                j = start + tl.arange(0, BLOCK)
                there = j < high
                ot, vt = stored(other, j, there, d, D), rows(said, j, there, e, E)
                pair = tl.dot(yt, tl.trans(vt), input_precision=PRECISION)
                if QUERIES:
                    pair += hn[:, None]
                else:
                    pair += tl.load(other_h + j, mask=there, other=0)[None, :]
                pair = weighed(pair, n, j, there, rate, DECAY, QUERIES)
                ashift = shifts(ot, other_tops, j, there, half, KIND, not QUERIES)
                heard = features(other, ot, j, there, ashift, f, w, taken, D, DP, F, KIND, not QUERIES)
                change = tl.dot(pair, heard, change, input_precision=PRECISION)
        phi = features(x, xt, n, here, shift, f, w, taken, D, DP, F, KIND, QUERIES)
        if KIND == "exponential":
            change *= phi
            felt += tl.sum(change, 1)
            total = tl.dot(change, rows(w, f, f < F, d, D), total, input_precision=PRECISION)
        else:
            if KIND == "elu":
                change *= tl.minimum(phi, 1.0)
            inside = here[:, None] & (f < F)[None, :]
            tl.store(dx + n[:, None] * D + f[None, :], change.to(dx.dtype.element_ty), mask=inside)
    if KIND == "exponential":
        if not QUERIES:
            total -= (2 * half * felt)[:, None] * xt.to(tl.float32)
        inside = here[:, None] & (d < D)[None, :]
        tl.store(dx + n[:, None] * D + d[None, :], total.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def one(
    x, f, w, taken, D: tl.constexpr, DP: tl.constexpr, F: tl.constexpr,
    KIND: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """φ_f of one row, or its exponents."""
    if KIND == "exponential":
        d = tl.arange(0, DP)
        row = tl.load(x + d, mask=d < D, other=0).to(tl.float32)
        half = tl.load(taken + f, mask=f < F, other=0)
        found = tl.sum(rows(w, f, f < F, d, D) * row[None, :], 1)
        if QUERIES:
            found += half
        else:
            found -= half
        found = tl.where(f < F, found, float("-inf"))
    elif KIND == "square":
        first = tl.load(x + f // D, mask=f < F, other=0).to(tl.float32)
        found = first * tl.load(x + f % D, mask=f < F, other=0).to(tl.float32)
    else:
        found = tl.load(x + f, mask=f < F, other=0).to(tl.float32)
        if KIND == "elu":
            found = tl.where(f < F, tl.where(found > 0, found + 1, tl.exp(tl.minimum(found, 0.0))), 0.0)
    return found


@triton.jit
def step(
    q, k, v, before, keep, w, taken, after, out, half,
    D: tl.constexpr, E: tl.constexpr, F: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, KIND: tl.constexpr, FIRST: tl.constexpr,
    KEEP: tl.constexpr,
):  # fmt: skip
    """A program has EP of the values; the normaliser stands behind the last, in column E of a state."""
    part, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    e, g, d = part * EP + tl.arange(0, EP), tl.arange(0, GROUP), tl.arange(0, DP)
    q, k, v, out = q + batch * D, k + batch * D, v + batch * E, out + batch * E
    before, after = before + batch * F * (E + 1), after + batch * F * (E + 1)
    kept = 1.0
    if KEEP:
        kept = tl.load(keep + batch)
    said = tl.load(v + e, mask=e < E, other=0).to(tl.float32)
    top = 0.0
    shift = 0.0
    if KIND == "exponential":
        row = tl.load(k + d, mask=d < D, other=0).to(tl.float32)
        shift = half * tl.sum(row * row, 0)
        top = float("-inf")
        for group in range(0, GROUPS):
            top = tl.maximum(top, tl.max(one(q, group * GROUP + g, w, taken, D, DP, F, KIND, True), 0))
    total = tl.zeros((EP,), tl.float32)
    weight = tl.zeros((GROUP,), tl.float32)
    for group in range(0, GROUPS):
        f = group * GROUP + g
        asks, tells = one(q, f, w, taken, D, DP, F, KIND, True), one(k, f, w, taken, D, DP, F, KIND, False)
        if KIND == "exponential":
            asks, tells = tl.exp(asks - top), tl.exp(tells - shift)
        where = f[:, None] * (E + 1) + e[None, :]
        inside = (f < F)[:, None] & (e < E)[None, :]
        s = tells[:, None] * said[None, :]
        z = tells
        if not FIRST:
            s += kept * tl.load(before + where, mask=inside, other=0)
            z += kept * tl.load(before + f * (E + 1) + E, mask=f < F, other=0)
        tl.store(after + where, s, mask=inside)
        if part == 0:
            tl.store(after + f * (E + 1) + E, z, mask=f < F)
        total += tl.sum(asks[:, None] * s, 0)
        weight += asks * z
    whole = tl.sum(weight, 0)
    total = tl.where(whole == 0, 0.0, total / tl.where(whole == 0, 1.0, whole))
    tl.store(out + e, total.to(out.dtype.element_ty), mask=e < E)
