"""The kernels of a product of many rows with a small matrix; `many_rows.py` has the formulas and the shapes.

Tensor cores take powers of two, so a program's columns are two blocks, MAIN and REST: 80 are 64 and 16.
Widths are known when a kernel is compiled, for only then does it read 16 bytes a thread of rows of, say, 264
numbers.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile(matrix, row, column, rows, STEP: tl.constexpr, ACROSS: tl.constexpr, COLUMNS: tl.constexpr):
    """A block of a matrix, 0 outside."""
    inside = (row < rows)[:, None] & (column < COLUMNS)[None, :]
    return tl.load(matrix + (row * STEP)[:, None] + (column * ACROSS)[None, :], mask=inside, other=0)


@triton.jit
def put(matrix, row, column, rows, COLUMNS: tl.constexpr, values):
    inside = (row < rows)[:, None] & (column < COLUMNS)[None, :]
    tl.store(matrix + (row * COLUMNS)[:, None] + column[None, :], values, mask=inside)


@triton.jit(do_not_specialize=["rows"])
def multiply(
    x, weight, out, rows,
    INNER: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr, ACROSS: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, MAIN: tl.constexpr, REST: tl.constexpr, BLOCKS: tl.constexpr,
    WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x W, a block of rows and one of columns a program; W may lie either way, STEP and ACROSS say how."""
    row = tl.program_id(0) // BLOCKS * ROWS + tl.arange(0, ROWS)
    if WIDE:
        row = row.to(tl.int64)
    first = tl.program_id(0) % BLOCKS * (MAIN + REST)
    column = first + tl.arange(0, MAIN)
    total = tl.zeros((ROWS, MAIN), tl.float32)
    if REST > 0:
        column_rest = first + MAIN + tl.arange(0, REST)
        total_rest = tl.zeros((ROWS, REST), tl.float32)
    for start in range(0, INNER, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        a = tile(x, row, inner, rows, INNER, 1, INNER)
        b = tile(weight, inner, column, INNER, STEP, ACROSS, COLUMNS)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        if REST > 0:
            b = tile(weight, inner, column_rest, INNER, STEP, ACROSS, COLUMNS)
            total_rest = tl.dot(a, b, total_rest, input_precision=PRECISION)
    put(out, row, column, rows, COLUMNS, total)
    if REST > 0:
        put(out, row, column_rest, rows, COLUMNS, total_rest)


@triton.jit(do_not_specialize=["rows", "steps"])
def multiply_transposed(
    x, gradient, parts, rows, steps,
    INNER: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, MAIN: tl.constexpr,
    REST: tl.constexpr, BLOCKS: tl.constexpr, WIDE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """xᵀ g over `steps` blocks of rows, a block of the result a program: what these rows add to it."""
    chunk = tl.program_id(0) // BLOCKS
    first = tl.program_id(0) % BLOCKS * (MAIN + REST)
    inner, column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), first + tl.arange(0, MAIN)
    total = tl.zeros((BLOCK, MAIN), tl.float32)
    if REST > 0:
        column_rest = first + MAIN + tl.arange(0, REST)
        total_rest = tl.zeros((BLOCK, REST), tl.float32)
    for step in range(steps):
        row = (chunk * steps + step) * ROWS + tl.arange(0, ROWS)
        if WIDE:
            row = row.to(tl.int64)
        a = tl.trans(tile(x, row, inner, rows, INNER, 1, INNER))
        g = tile(gradient, row, column, rows, COLUMNS, 1, COLUMNS)
        total = tl.dot(a, g, total, input_precision=PRECISION)
        if REST > 0:
            g = tile(gradient, row, column_rest, rows, COLUMNS, 1, COLUMNS)
            total_rest = tl.dot(a, g, total_rest, input_precision=PRECISION)
    parts += chunk * (INNER * COLUMNS)
    put(parts, inner, column, INNER, COLUMNS, total)
    if REST > 0:
        put(parts, inner, column_rest, INNER, COLUMNS, total_rest)
