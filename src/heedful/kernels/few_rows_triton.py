"""The kernels of a decoder's step for few rows; `few_rows.py` has the formulas and the shapes.

A token of a small model is bound by how many kernels follow one another, not by what they read: so what
stands around a product (norm, bias, activation, residual) is computed with it, and the norm again by each
program, which costs less than a kernel that writes it down. Products are sums, not `tl.dot`: a matrix unit's
tile has 16 rows or more, and all threads share the inputs of a sum instead. They take float32 throughout.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def activated(x, ACTIVATION: tl.constexpr):
    if ACTIVATION == "relu":
        x = tl.where(x < 0, 0.0, x)
    elif ACTIVATION == "gelu":
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "gelu_tanh":  # (1 + tanh u) / 2 = sigmoid(2u)
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    return x


@triton.jit
def tile(weight, n, k, inputs, outputs):
    """(1, outputs, inputs): a block of a matrix, 0 outside."""
    return tl.load(weight + n.to(tl.int64) * inputs + k, mask=(n < outputs) & (k < inputs), other=0)


@triton.jit(do_not_specialize=["rows", "outputs"])
def linear(
    x, weight, bias, norm_weight, norm_bias, residual, out, place, rows, inputs, outputs, eps,
    NORM: tl.constexpr, ACTIVATION: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr,
    INPUTS: tl.constexpr,
):  # fmt: skip
    """out = σ(norm(x) Wᵀ + b) + residual, a block of rows and one of outputs a program.

    All tiles are (rows, outputs, inputs), so that they share one layout and none is moved between threads.
    `swiglu` takes a second block of W, as far down as there are outputs.
    """
    GATED: tl.constexpr = ACTIVATION == "swiglu"
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None, None]
    n = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)[None, :, None]
    k = tl.arange(0, INPUTS)[None, None, :]
    x += r * inputs
    values = weight + outputs.to(tl.int64) * inputs
    inside = (r < rows) & (n < outputs)
    # Weights come from afar: they are asked for before the norm is computed, and each block before the one in
    # hand is used.
    w = tile(weight, n, k, inputs, outputs)
    if GATED:
        v = tile(values, n, k, inputs, outputs)
    if norm_weight is not None:
        gain = tl.load(norm_weight + k, mask=k < inputs, other=0)
    if norm_bias is not None:
        shift = tl.load(norm_bias + k, mask=k < inputs, other=0)
    if bias is not None:
        added = tl.load(bias + n, mask=n < outputs, other=0)
        if GATED:
            value_added = tl.load(bias + outputs + n, mask=n < outputs, other=0)
    if residual is not None:
        beside = tl.load(residual + r * outputs + n, mask=inside, other=0)

    if NORM == "layer":
        sums = tl.zeros((ROWS, 1, INPUTS), tl.float32)
        for start in range(0, inputs, INPUTS):
            at = start + k
            sums += tl.load(x + at, mask=(r < rows) & (at < inputs), other=0).to(tl.float32)
        mean = tl.sum(sums, 2, keep_dims=True) / inputs
    if NORM != "none":
        squares = tl.zeros((ROWS, 1, INPUTS), tl.float32)
        for start in range(0, inputs, INPUTS):
            at = start + k
            z = tl.load(x + at, mask=(r < rows) & (at < inputs), other=0).to(tl.float32)
            if NORM == "layer":
                z = tl.where(at < inputs, z - mean, 0.0)
            squares += z * z
        rate = 1 / tl.sqrt(tl.sum(squares, 2, keep_dims=True) / inputs + eps)

    total = tl.zeros((ROWS, OUTPUTS, INPUTS), tl.float32)
    if GATED:
        value_total = tl.zeros((ROWS, OUTPUTS, INPUTS), tl.float32)
    for start in range(0, inputs, INPUTS):
        at = start + k
        soon = at + INPUTS
        z = tl.load(x + at, mask=(r < rows) & (at < inputs), other=0).to(tl.float32)
        if NORM == "layer":
            z -= mean
        if NORM != "none":
            z *= rate
        if norm_weight is not None:
            z *= gain.to(tl.float32)
            gain = tl.load(norm_weight + soon, mask=soon < inputs, other=0)
        if norm_bias is not None:
            z += shift.to(tl.float32)
            shift = tl.load(norm_bias + soon, mask=soon < inputs, other=0)
        here = w.to(tl.float32)
        w = tile(weight, n, soon, inputs, outputs)
        total += z * here
        if GATED:
            here = v.to(tl.float32)
            v = tile(values, n, soon, inputs, outputs)
            value_total += z * here

    y = tl.sum(total, 2, keep_dims=True)  # (rows, outputs, 1)
    if bias is not None:
        y += added.to(tl.float32)
    if GATED:
        value = tl.sum(value_total, 2, keep_dims=True)
        if bias is not None:
            value += value_added.to(tl.float32)
        y = y * tl.sigmoid(y) * value
    else:
        y = activated(y, ACTIVATION)
    if residual is not None:
        y += beside.to(tl.float32)
    tl.store(out + r * outputs + n, y.to(out.dtype.element_ty), mask=inside)
    if place is not None:  # the last product of a token; nobody in this launch asks where it is
        first = (tl.program_id(0) == 0) & (tl.program_id(1) == 0)
        tl.store(place, tl.load(place) + 1, mask=first)


@triton.jit
def embedding(tokens, table, places, place, out, dim, BLOCK: tl.constexpr):
    """out_r = E[token_r] + places[place]."""
    row, d = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens + row)
    x = tl.load(table + token * dim + d, mask=d < dim, other=0).to(tl.float32)
    if places is not None:
        x += tl.load(places + tl.load(place) * dim + d, mask=d < dim, other=0).to(tl.float32)
    tl.store(out + row * dim + d, x.to(out.dtype.element_ty), mask=d < dim)


@triton.jit
def turned(x, cos, sin, d, inside, DIMS: tl.constexpr, INTERLEAVED: tl.constexpr):
    """x with its first DIMS coordinates turned in pairs (a, b) → (a cos − b sin, a sin + b cos)."""
    own = tl.load(x + d, mask=inside, other=0).to(tl.float32)
    if DIMS > 0:
        turns = d < DIMS
        if INTERLEAVED:
            pair, second = d // 2, d % 2 == 1
            other = tl.where(second, d - 1, d + 1)
        else:
            pair, second = d % (DIMS // 2), d >= DIMS // 2
            other = tl.where(second, d - DIMS // 2, d + DIMS // 2)
        across = tl.load(x + other, mask=turns, other=0).to(tl.float32)
        c, s = tl.load(cos + pair, mask=turns, other=1), tl.load(sin + pair, mask=turns, other=0)
        own = own * c + tl.where(second, across, -across) * s
    return own


@triton.jit(do_not_specialize=["room", "heads", "kv_heads", "table_step", "scale_step"])
def attention(
    z, cache, table, cos, sin, scales, place, out, room, heads, kv_heads, table_step, scale_step, scale,
    WIDTH: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr, DIMS: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """The newest token's head over keys 0 … place, in one pass; its key and value join the cache.

    z is (rows, heads + 2 kv_heads, WIDTH), the cache (rows, 2, kv_heads, room, WIDTH). The newest key and
    value are taken from z, for another program of the group may be the one that writes them.
    """
    h, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    group = heads // kv_heads
    kv = h // group
    t = tl.load(place).to(tl.int32)
    d = tl.arange(0, LANES)
    inside = d < WIDTH
    z += row * (heads + 2 * kv_heads) * WIDTH
    keys = cache + (row * 2 * kv_heads + kv) * room * WIDTH
    values = keys + kv_heads.to(tl.int64) * room * WIDTH
    if DIMS > 0:
        cos += t * (DIMS // 2)
        sin += t * (DIMS // 2)
    q = turned(z + h * WIDTH, cos, sin, d, inside, DIMS, INTERLEAVED)
    k = turned(z + (heads + kv) * WIDTH, cos, sin, d, inside, DIMS, INTERLEAVED)
    k = k.to(cache.dtype.element_ty)  # as later tokens will read it
    v = tl.load(z + (heads + kv_heads + kv) * WIDTH + d, mask=inside, other=0)
    if h % group == 0:
        tl.store(keys + t * WIDTH + d, k, mask=inside)
        tl.store(values + t * WIDTH + d, v, mask=inside)
    if scales is not None:
        q *= tl.load(scales + h * scale_step).to(tl.float32)
    else:
        q *= scale
    most = tl.sum(q * k.to(tl.float32), 0)
    if table is not None:
        table += h * table_step
        most += tl.load(table).to(tl.float32)
    # A table may silence any distance, 0 too: then nothing has been heard yet.
    total = tl.where(most == -float("inf"), 0.0, 1.0)
    heard = v.to(tl.float32) * total
    for start in range(0, t, BLOCK):
        j = start + tl.arange(0, BLOCK)
        here = (j < t)[:, None] & inside[None, :]
        at = j[:, None] * WIDTH + d[None, :]
        key = tl.load(keys + at, mask=here, other=0).to(tl.float32)
        value = tl.load(values + at, mask=here, other=0).to(tl.float32)
        score = tl.sum(key * q[None, :], 1)
        if table is not None:
            score += tl.load(table + (t - j), mask=j < t, other=0).to(tl.float32)
        score = tl.where(j < t, score, -float("inf"))
        before, most = most, tl.maximum(most, tl.max(score, 0))
        base = tl.where(most == -float("inf"), 0.0, most)
        share, kept = tl.exp(score - base), tl.exp(before - base)
        total = total * kept + tl.sum(share, 0)
        heard = heard * kept + tl.sum(share[:, None] * value, 0)
    heard /= tl.where(total == 0, 1.0, total)
    tl.store(out + (row * heads + h) * WIDTH + d, heard.to(out.dtype.element_ty), mask=inside)
