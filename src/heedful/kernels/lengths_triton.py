"""What `lengths.shortened` divides by, on the GPU: the largest of all keys, then each query's own."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def largest(x, n, here, LIMIT: tl.constexpr, D: tl.constexpr, DP: tl.constexpr):
    """Of each row, in float32."""
    d = tl.arange(0, DP)
    found = tl.load(x + n[:, None] * D + d[None, :], mask=here[:, None] & (d < D)[None, :], other=0)
    size = tl.abs(found.to(tl.float32))
    return tl.max(tl.where(size < LIMIT, size, 0.0), 1)


@triton.jit
def exponent(largest, MARGIN: tl.constexpr):
    """Of a power of two above it and MARGIN more, from the bits of a float32, which count from −127."""
    bits = tl.maximum(largest, 1.1754943508222875e-38).to(tl.int32, bitcast=True)
    return (bits >> 23) - 126 + MARGIN


@triton.jit
def bounded(exponent, most):
    return tl.minimum(tl.maximum(exponent, -most), most)


@triton.jit
def inverse(exponent):
    """2^−exponent"""
    return ((127 - exponent) << 23).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["length", "span"])
def longest(
    k, found, length, span, LIMIT: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr
):
    part, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    k += batch * length * D
    top = tl.zeros((BLOCK,), tl.float32)
    stop = tl.minimum(part * span + span, length)
    for start in range(part * span, stop, BLOCK):
        m = start + tl.arange(0, BLOCK)
        top = tl.maximum(top, largest(k, m, m < stop, LIMIT, D, DP))
    tl.store(found + batch * tl.num_programs(0) + part, tl.max(top, 0))


@triton.jit(do_not_specialize=["length", "parts", "constant", "of_constant", "room"])
def inverses(
    q, keys, r, s, constants, length, parts, constant, of_constant, room,
    MARGIN: tl.constexpr, MOST: tl.constexpr, PARTS: tl.constexpr,
    D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    block, batch = tl.program_id(0), tl.program_id(1).to(tl.int64)
    part = tl.arange(0, PARTS)
    longest = tl.max(tl.load(keys + batch * parts + part, mask=part < parts, other=0), 0)
    of_keys = exponent(longest, MARGIN)
    of_keys = tl.maximum(of_keys - bounded(of_keys, room), of_constant - MOST)
    if block == 0:
        tl.store(s + batch, inverse(of_keys).to(s.dtype.element_ty))
    n = block * BLOCK + tl.arange(0, BLOCK)
    here = n < length
    of_query = exponent(largest(q + batch * length * D, n, here, float("inf"), D, DP), MARGIN)
    found = inverse(bounded(tl.maximum(of_query, of_constant - of_keys), MOST))
    tl.store(r + batch * length + n, found.to(r.dtype.element_ty), mask=here)
    tl.store(constants + batch * length + n, constant * found * inverse(of_keys), mask=here)
