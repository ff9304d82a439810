"""A decoder's step for few rows, on the GPU: five kernels a layer where torch has a dozen.

    linear       σ(norm(x) Wᵀ + b) + residual
    attention    softmax(scale q·k_j + table_{t−j}) over the cache, j ≤ t, with q and k_t turned
    embedding    E[token] + places[t]

t, the place, is a tensor, so that a recording of these can be replayed for every token. Weights are read
where they lie, in their type, and multiplied in float32. `few_rows_triton.py` has the kernels.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from . import sparse_operators

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "swiglu")
MOST_ROWS = 16
# Four rows share a weight they read; with more it is read again, which wide layers feel.
MOST_NUMBERS = 1 << 14  # rows · width
# A head is one program, whatever the text's length; beyond this several would be worth their bookkeeping.
MOST_KEYS = 4096
WIDEST_HEAD = 256
KEYS = 1 << 13  # numbers of a block of keys, in the registers of 256 threads
PROGRAMS = 132  # a program for every multiprocessor of an H100 or H200


def suits(parameters: list[Tensor], rows: int, width: int) -> bool:
    """Whether the kernels take so many rows of this width, with weights such as these."""
    if rows > MOST_ROWS or rows * width > MOST_NUMBERS or find_spec("triton") is None:
        return False
    device, dtype = parameters[0].device, parameters[0].dtype
    alike = all(p.device == device and p.dtype == dtype and p.is_contiguous() for p in parameters)
    return alike and dtype in DTYPES and sparse_operators.on_gpu(device)


class Norm(NamedTuple):
    """LayerNorm or RMSNorm of the last dimension; a weight of None is 1, a bias 0."""

    kind: str  # "layer" or "rms"
    weight: Tensor | None
    bias: Tensor | None
    eps: float


class Tiles(NamedTuple):
    """What a program of `linear` takes."""

    rows: int
    outputs: int
    inputs: int  # at a time
    warps: int


def tiles_of(rows: int, outputs: int, inputs: int, gated: bool) -> Tiles:
    """So many outputs that all multiprocessors have some, and four inputs a thread, up to 256 threads.

    A thread keeps at most 64 sums: with more it runs out of registers.
    """
    together = min(4, _power(rows))
    groups, some = -(-rows // together), min(8, (8 if gated else 16) // together)
    while some > 1 and groups * -(-outputs // some) < PROGRAMS:
        some //= 2
    long = min(_power(inputs), 2048 if together * some <= 4 else 1024)
    return Tiles(together, some, long, min(8, max(1, long // 128)))


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    norm: Norm | None = None,
    activation: str = "none",
    residual: Tensor | None = None,
    place: Tensor | None = None,
) -> Tensor:
    """σ(norm(x) Wᵀ + b) + residual, (rows, inputs) → (rows, outputs); moves `place` on by one if given."""
    from . import few_rows_triton as kernels
    from .sparse_triton import on

    rows, inputs = x.shape
    gated = activation == "swiglu"
    outputs = weight.shape[0] // (2 if gated else 1)
    tiles = tiles_of(rows, outputs, inputs, gated)
    kind, norm_weight, norm_bias, eps = norm or Norm("none", None, None, 0.0)
    out = x.new_empty(rows, outputs)
    grid = (-(-rows // tiles.rows), -(-outputs // tiles.outputs))
    with on(x.device):
        kernels.linear[grid](
            x, weight, bias, norm_weight, norm_bias, residual, out, place, rows, inputs, outputs, eps,
            NORM=kind, ACTIVATION=activation, ROWS=tiles.rows, OUTPUTS=tiles.outputs, INPUTS=tiles.inputs,
            num_warps=tiles.warps,
        )  # fmt: skip
    return out


def embedding(tokens: Tensor, table: Tensor, places: Tensor | None, place: Tensor) -> Tensor:
    """E[token] + places[place], (rows,) → (rows, dim)."""
    from . import few_rows_triton as kernels
    from .sparse_triton import on

    rows, dim = tokens.shape[0], table.shape[1]
    out = table.new_empty(rows, dim)
    block = min(512, _power(dim))
    with on(table.device):
        kernels.embedding[(rows, -(-dim // block))](
            tokens, table, places, place, out, dim, BLOCK=block, num_warps=4
        )
    return out


class Turns(NamedTuple):
    """Rotary's cosines and sines of all places, (room, dims / 2) in float32, and how coordinates pair."""

    cos: Tensor
    sin: Tensor
    interleaved: bool


def attention(
    z: Tensor,
    cache: Tensor,
    place: Tensor,
    heads: int,
    *,
    scale: float | Tensor,
    turns: Turns | None = None,
    table: Tensor | None = None,
) -> Tensor:
    """The newest token over the cache, which it joins at `place`, (rows, heads · width).

    z is (rows, (heads + 2 kv_heads) · width): queries, keys, values. The cache is (rows, 2, kv_heads, room,
    width). The table, (heads or 1, room), is added to the scores by distance; a scale may be one a head.
    """
    from . import few_rows_triton as kernels
    from .sparse_triton import on

    rows, _, kv_heads, room, width = cache.shape
    lanes = _power(width)
    number, scales = (1.0, scale) if isinstance(scale, Tensor) else (float(scale), None)
    cos, sin, interleaved = turns or (None, None, False)
    out = z.new_empty(rows, heads * width)
    with on(z.device):
        kernels.attention[(heads, rows)](
            z, cache, table, cos, sin, scales, place, out, room, heads, kv_heads,
            room if table is not None and table.shape[0] > 1 else 0,
            scales.stride(0) if scales is not None and scales.numel() > 1 else 0, number,
            WIDTH=width, LANES=lanes, BLOCK=min(256, KEYS // lanes),
            DIMS=0 if cos is None else 2 * cos.shape[1], INTERLEAVED=interleaved, num_warps=8,
        )  # fmt: skip
    return out


def _power(n: int) -> int:
    return 1 << (n - 1).bit_length()
