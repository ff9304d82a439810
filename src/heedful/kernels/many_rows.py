"""A product of many rows with a small matrix on the GPU, in float32 by tensor cores.

    out = x W,      dx = g Wᵀ,      dW = xᵀ g

cuBLAS, which may not round to tf32 unless told to, leaves the tensor cores alone, and its tiles fit few
columns badly. Here each factor is the sum of two tf32 numbers, and three of the four products of these are
taken: float32's accuracy at a third of tf32's rate. dW is summed in chunks of rows, whose parts are added up
in their order. Plain eager calls only; `many_rows_triton.py` has the kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from . import sparse_operators

FEWEST_ROWS = 1 << 14  # with fewer a product takes no longer than starting it
WIDEST = 512  # columns of either side
PROGRAMS = 264  # that take a chunk of rows each for dW: two for every multiprocessor of an H100 or H200
MOST_COLUMNS = 128  # a program
# (bf16x6, six products of three bfloat16 numbers each, is as accurate and took a quarter less; but with
# blocks of 64 inner columns Triton 3.6 made kernels of it that read what is not theirs.)
PRECISION = "tf32x3"
FASTER_ON = frozenset({(9, 0)})  # compute capabilities they were measured on: H100's and H200's


class Tiles(NamedTuple):
    """What a program takes at a time, and what it is compiled with."""

    rows: int
    block: int  # of inner columns
    warps: int
    stages: int


# By what the compiler says (sm_90): 152 to 194 and 125 to 150 registers, nothing spilled, so that two or
# three programs share a multiprocessor. 128 rows and four warps spill.
FORWARD, TRANSPOSED = Tiles(64, 32, 4, 3), Tiles(16, 128, 8, 4)


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x W, (rows, inner) · (inner, columns); by torch where that is faster."""
    return _Product.apply(x, weight) if suits(x, weight) else x @ weight


def suits(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels are the faster: float32 that may not be rounded, many rows, few columns."""
    return (
        x.dtype == weight.dtype == torch.float32
        and x.shape[0] >= FEWEST_ROWS
        and min(weight.shape) >= 16
        and max(weight.shape) <= WIDEST
        and x.is_contiguous()
        and weight.is_contiguous()
        and sparse_operators.on_gpu(x.device)
        and torch.backends.cuda.matmul.fp32_precision != "tf32"
        and has_tensor_cores(x.device)
        and sparse_operators.unobserved(x.detach() if isinstance(x, torch.nn.Parameter) else x)
    )


def has_tensor_cores(device: torch.device) -> bool:
    """Such as these kernels have been found to be faster on."""
    return torch.version.hip is None and torch.cuda.get_device_capability(device) in FASTER_ON


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return multiply(x, weight)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        need_x, need_weight = ctx.needs_input_grad
        # What will be differentiated again, and what lies otherwise than the kernels take it.
        if torch.is_grad_enabled() or not gradient.is_contiguous():
            return gradient @ weight.T if need_x else None, x.T @ gradient if need_weight else None
        d_weight = multiply_transposed(x, gradient) if need_weight else None
        return multiply(gradient, weight.T) if need_x else None, d_weight


def multiply(x: Tensor, weight: Tensor, tiles: Tiles | None = None) -> Tensor:
    """x W, whichever way W lies."""
    from . import many_rows_triton as kernels
    from . import sparse_triton as triton

    (rows, inner), columns = x.shape, weight.shape[1]
    tiles = tiles or FORWARD._replace(block=block_of(inner))
    blocks, main, rest = cut(columns)
    out = x.new_empty(rows, columns)
    with triton.on(x.device):
        kernels.multiply[(-(-rows // tiles.rows) * blocks,)](
            x, weight, out, rows,
            INNER=inner, COLUMNS=columns, STEP=weight.stride(0), ACROSS=weight.stride(1), ROWS=tiles.rows,
            BLOCK=tiles.block, MAIN=main, REST=rest, BLOCKS=blocks, WIDE=_wide(x, out, triton.NARROW),
            PRECISION=PRECISION, num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
    return out


def multiply_transposed(x: Tensor, gradient: Tensor, tiles: Tiles = TRANSPOSED) -> Tensor:
    """xᵀ g, (inner, columns)."""
    from . import many_rows_triton as kernels
    from . import sparse_triton as triton

    (rows, inner), columns = x.shape, gradient.shape[1]
    blocks, main, rest = cut(columns)
    block = min(tiles.block, max(16, _power(inner)))
    down = -(-inner // block)
    steps = -(-rows // (tiles.rows * max(1, PROGRAMS // (blocks * down))))
    chunks = -(-rows // (tiles.rows * steps))
    parts = x.new_empty(chunks, inner, columns)
    with triton.on(x.device):
        kernels.multiply_transposed[(chunks * blocks, down)](
            x, gradient, parts, rows, steps,
            INNER=inner, COLUMNS=columns, ROWS=tiles.rows, BLOCK=block, MAIN=main, REST=rest, BLOCKS=blocks,
            WIDE=_wide(x, gradient, triton.NARROW), PRECISION=PRECISION, num_warps=tiles.warps,
            num_stages=tiles.stages,
        )  # fmt: skip
        return parts.sum(0)


def cut(columns: int) -> tuple[int, int, int]:
    """(blocks, main, rest): blocks of main + rest columns, powers of two from 16 on or no rest; few too many.

    >>> cut(80), cut(128), cut(264)
    ((1, 64, 16), (1, 128, 0), (3, 64, 32))
    """
    blocks = -(-columns // MOST_COLUMNS)
    each = max(16, -(-columns // blocks))
    whole = _power(each)
    if whole == each or whole == 16:
        return blocks, whole, 0
    main = whole // 2
    rest = max(16, _power(each - main))
    return (blocks, whole, 0) if rest >= main else (blocks, main, rest)


def block_of(inner: int) -> int:
    """Inner columns at a time: 32, or 16 where there are few, and that leaves fewer empty."""
    return 16 if -inner % 32 >= 16 and inner <= 128 else 32


def _wide(x: Tensor, other: Tensor, narrow: int) -> bool:
    # (The last block of rows reaches beyond the end, where nothing is read but addresses are computed.)
    return max(t.numel() + 256 * t.shape[1] for t in (x, other)) >= narrow


def _power(number: int) -> int:
    """The least power of two that is not below."""
    return 1 << (number - 1).bit_length()
