"""(q·k + c)² on the GPU by its features x_a x_b, made in registers and never stored.

    (q·k + c)² = Σ_ab q_a q_b · k_a k_b + 2c Σ_b q_b · k_b + c²

Features come in groups of A columns a, each with every b: a group of x is the product of A of its columns
with all of it, (positions, A·d). The last group has the constant for a column, so it holds the linear
features; c² is added apart. Three passes are all there is, forward, backward and causal:

    moments   S_f = Σ_n φ_f(x_n) y_n,  M = Σ_n h_n x_n x_nᵀ,  …    over spans of positions, in a fixed order
    apply     out_n = Σ_f φ_f(x_n) S_f,  den_n = x_nᵀ M x_n + …
    pull      dx_n = ∂/∂x_n (Σ_f φ_f(x_n) S_f·y_n + h_n den_n)

With causal neighbours S is that of the spans before (or after), and pairs inside a span are taken one by one.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def columns(x, n, here, cn, a, D: tl.constexpr, DP: tl.constexpr, TIMES: tl.constexpr):
    """(positions, A) of x; behind the last column stands the constant, TIMES."""
    xa = tl.load(x + n[:, None] * D + a[None, :], mask=here[:, None] & (a < D)[None, :], other=0)
    return tl.where(a[None, :] == DP, (TIMES * cn[:, None]).to(xa.dtype), xa)


@triton.jit
def features(xa, xt, A: tl.constexpr, DP: tl.constexpr):
    return tl.reshape(xa[:, :, None] * xt[:, None, :], (xt.shape[0], A * DP))


@triton.jit
def normaliser(mass, xt, cn, DP: tl.constexpr):
    """M x + c m a position, (positions, d): half its product with x, and c² more, is the normaliser."""
    b = tl.arange(0, DP)
    matrix = tl.load(mass + b[:, None] * DP + b[None, :])
    linear = tl.load(mass + DP * DP + b)
    return tl.dot(xt, matrix, input_precision="tf32x3"), cn[:, None] * linear[None, :]


@triton.jit
def rows(x, n, here, d, D: tl.constexpr):
    return tl.load(x + n[:, None] * D + d[None, :], mask=here[:, None] & (d < D)[None, :], other=0)


@triton.jit
def numbers(c, n, here, GIVEN: tl.constexpr):
    """One number a position; 1 where none are given."""
    if GIVEN:
        found = tl.load(c + n, mask=here, other=0).to(tl.float32)
    else:
        found = here.to(tl.float32)
    return found


@triton.jit(do_not_specialize=["length", "span", "splits"])
def moments(
    x, y, h, c, second, zeroth, mass, mass_zeroth, length, span, splits,
    D: tl.constexpr, E: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr, A: tl.constexpr,
    BLOCK: tl.constexpr, GIVEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    last: tl.constexpr = DP // A
    # The last group has most to do, so it goes first.
    group, split, batch = last - tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    a, b, e = group * A + tl.arange(0, A), tl.arange(0, DP), tl.arange(0, EP)
    x, y, h, c = x + batch * length * D, y + batch * length * E, h + batch * length, c + batch * length
    total = tl.zeros((A * DP, EP), tl.float32)
    stop = tl.minimum(split * span + span, length)
    for start in range(split * span, stop, BLOCK):
        n = start + tl.arange(0, BLOCK)
        here = n < stop
        cn = numbers(c, n, here, GIVEN)
        xt, yt = rows(x, n, here, b, D), rows(y, n, here, e, E)
        phi = features(columns(x, n, here, cn, a, D, DP, 1.0), xt, A, DP)
        total = tl.dot(tl.trans(phi), yt, total, input_precision=PRECISION)
    place = batch * splits + split
    f = group * (A * DP) + tl.arange(0, A * DP)
    tl.store(second + (place * ((last + 1) * A * DP) + f)[:, None] * EP + e[None, :], total)
    if group == last:
        # A loop of its own: two products in one, the second in a branch, came out wrong (Triton 3.6, wgmma).
        matrix = tl.zeros((DP, DP), tl.float32)
        linear = tl.zeros((DP,), tl.float32)
        rest = tl.zeros((EP,), tl.float32)
        rest_weight = tl.zeros((BLOCK,), tl.float32)
        for start in range(split * span, stop, BLOCK):
            n = start + tl.arange(0, BLOCK)
            here = n < stop
            cn, hn = numbers(c, n, here, GIVEN), numbers(h, n, here, GIVEN)
            xt, yt = rows(x, n, here, b, D), rows(y, n, here, e, E).to(tl.float32)
            weighted = xt.to(tl.float32) * hn[:, None]
            if GIVEN:
                matrix = tl.dot(tl.trans(xt.to(tl.float32)), weighted, matrix, input_precision="tf32x3")
            else:
                matrix = tl.dot(tl.trans(xt), xt, matrix, input_precision=PRECISION)
            linear += tl.sum(weighted * cn[:, None], 0)
            rest += tl.sum(yt * (cn * cn)[:, None], 0)
            rest_weight += cn * cn * hn
        mass += place * ((DP + 1) * DP)
        tl.store(mass + b[:, None] * DP + b[None, :], matrix)
        tl.store(mass + DP * DP + b, linear)
        tl.store(zeroth + place * EP + e, rest)
        tl.store(mass_zeroth + place, tl.sum(rest_weight, 0))


@triton.jit(do_not_specialize=["length", "span", "splits"])
def apply(
    x, c, second, zeroth, mass, mass_zeroth, out, den, other, said, other_c, length, span, splits,
    D: tl.constexpr, E: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr, A: tl.constexpr,
    BLOCK: tl.constexpr, GIVEN: tl.constexpr, NORM: tl.constexpr, CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """`other`, `said`: at CAUSAL 1 keys and values, heard up to here; at 2 queries that hear from here on."""
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    last: tl.constexpr = DP // A
    b, e = tl.arange(0, DP), tl.arange(0, EP)
    x, c, out, den = (
        x + batch * length * D,
        c + batch * length,
        out + batch * length * E,
        den + batch * length,
    )
    n = block * BLOCK + tl.arange(0, BLOCK)
    here = n < length
    split = 0
    if CAUSAL > 0:
        split = block * BLOCK // span
    place = batch * splits + split
    cn, narrow = numbers(c, n, here, GIVEN), rows(x, n, here, b, D)
    total = tl.zeros((BLOCK, EP), tl.float32)
    weight = tl.zeros((BLOCK,), tl.float32)
    for group in range(0, last + 1):
        phi = features(columns(x, n, here, cn, group * A + tl.arange(0, A), D, DP, 2.0), narrow, A, DP)
        f = place * ((last + 1) * A * DP) + group * (A * DP) + tl.arange(0, A * DP)
        s = tl.load(second + f[:, None] * EP + e[None, :])
        total = tl.dot(phi, s.to(narrow.dtype), total, input_precision=PRECISION)
    total += (cn * cn)[:, None] * tl.load(zeroth + place * EP + e)[None, :]
    if NORM:
        xt = narrow.to(tl.float32)
        square, linear = normaliser(mass + place * ((DP + 1) * DP), xt, cn, DP)
        weight = tl.sum((square + 2 * linear) * xt, 1) + cn * cn * tl.load(mass_zeroth + place)
    if CAUSAL > 0:
        other, said, other_c = other + batch * length * D, said + batch * length * E, other_c + batch * length
        low, high = split * span, tl.minimum(split * span + span, length)
        if CAUSAL == 1:
            high = tl.minimum(high, block * BLOCK + BLOCK)
        else:
            low = block * BLOCK
        for start in range(low, high, BLOCK):
            j = start + tl.arange(0, BLOCK)
            there = j < high
            kt, vt = rows(other, j, there, b, D), rows(said, j, there, e, E)
            score = tl.dot(narrow, tl.trans(kt), input_precision=PRECISION)
            if CAUSAL == 1:
                score = tl.where((j[None, :] <= n[:, None]) & there[None, :], score + cn[:, None], 0.0)
            else:
                ci = numbers(other_c, j, there, True)
                score = tl.where((j[None, :] >= n[:, None]) & there[None, :], score + ci[None, :], 0.0)
            rounded = (score * score).to(narrow.dtype)
            weight += tl.sum(rounded.to(tl.float32), 1)
            total = tl.dot(rounded, vt, total, input_precision=PRECISION)
    if NORM:
        nobody = weight == 0
        total = tl.where(nobody[:, None], 0.0, total / tl.where(nobody, 1.0, weight)[:, None])
        tl.store(den + n, weight, mask=here)
    inside = here[:, None] & (e < E)[None, :]
    tl.store(out + n[:, None] * E + e[None, :], total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["length", "span", "splits"])
def pull(
    x, y, h, c, second, mass, dx, other, said, other_h, other_c, length, span, splits,
    D: tl.constexpr, E: tl.constexpr, DP: tl.constexpr, EP: tl.constexpr, A: tl.constexpr,
    BLOCK: tl.constexpr, GIVEN: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    last: tl.constexpr = DP // A
    b, e = tl.arange(0, DP), tl.arange(0, EP)
    x, y, dx = x + batch * length * D, y + batch * length * E, dx + batch * length * D
    h, c = h + batch * length, c + batch * length
    n = block * BLOCK + tl.arange(0, BLOCK)
    here = n < length
    split = 0
    if CAUSAL > 0:
        split = block * BLOCK // span
    place = batch * splits + split
    cn, hn, yt = numbers(c, n, here, GIVEN), numbers(h, n, here, GIVEN), rows(y, n, here, e, E)
    total = tl.zeros((BLOCK, DP), tl.float32)
    for group in range(0, last + 1):
        xa = columns(x, n, here, cn, group * A + tl.arange(0, A), D, DP, 1.0)
        f = place * ((last + 1) * A * DP) + group * (A * DP) + tl.arange(0, A * DP)
        s = tl.load(second + f[:, None] * EP + e[None, :])
        felt = tl.dot(yt, tl.trans(s.to(yt.dtype)), input_precision=PRECISION)
        total += tl.sum(xa.to(tl.float32)[:, :, None] * tl.reshape(felt, (BLOCK, A, DP)), 1)
    narrow = rows(x, n, here, b, D)
    square, linear = normaliser(mass + place * ((DP + 1) * DP), narrow.to(tl.float32), cn, DP)
    total += hn[:, None] * (square + linear)
    if CAUSAL > 0:
        other, said = other + batch * length * D, said + batch * length * E
        other_h, other_c = other_h + batch * length, other_c + batch * length
        low, high = split * span, tl.minimum(split * span + span, length)
        if CAUSAL == 1:
            high = tl.minimum(high, block * BLOCK + BLOCK)
        else:
            low = block * BLOCK
        for start in range(low, high, BLOCK):
            j = start + tl.arange(0, BLOCK)
            there = j < high
            kt, vt = rows(other, j, there, b, D), rows(said, j, there, e, E)
            score = tl.dot(narrow, tl.trans(kt), input_precision=PRECISION)
            felt = tl.dot(yt, tl.trans(vt), input_precision=PRECISION)
            if CAUSAL == 1:
                score = (score + cn[:, None]) * (felt + hn[:, None])
                score = tl.where((j[None, :] <= n[:, None]) & there[None, :], score, 0.0)
            else:
                ci, hi = numbers(other_c, j, there, True), numbers(other_h, j, there, True)
                score = (score + ci[None, :]) * (felt + hi[None, :])
                score = tl.where((j[None, :] >= n[:, None]) & there[None, :], score, 0.0)
            total = tl.dot(score.to(narrow.dtype), kt, total, input_precision=PRECISION)
    inside = here[:, None] & (b < D)[None, :]
    tl.store(dx + n[:, None] * D + b[None, :], (2 * total).to(dx.dtype.element_ty), mask=inside)
