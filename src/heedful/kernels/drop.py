"""out_n = x_n / (1 − rate) if the n-th number of the seed's stream says so, else 0: dropout without a mask.

`keep_mask` (head 0, counted by position) decides, so nothing is stored: the backward pass asks again. Torch's
own dropout draws its numbers one after another, 12 ns each; hashed, they come out in vectors, 0.5 ns each.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .dropout import kept_scale, threshold
from .parallel import over_rows

CHUNK = 1 << 15  # numbers a piece of work


def drop(x: Tensor, rate: float, seed: Tensor) -> Tensor:
    """Zero each number of x with probability `rate`, scale up the rest; `seed` is one int64. CPU, eager."""
    return _Drop.apply(x, rate, seed)


def _dropped(x: Tensor, rate: float, seed: Tensor) -> Tensor:
    from .drop_numba import drop_rows

    x = x.contiguous()
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    out = torch.empty_like(wide)
    bounds = np.arange(0, x.numel() + CHUNK, CHUNK).clip(max=x.numel())
    source = wide.detach().view(-1).numpy()
    over_rows(
        drop_rows,
        bounds,
        source,
        seed.numpy(),
        np.uint64(threshold(rate)),
        source.dtype.type(kept_scale(rate)),
        out.view(-1).numpy(),
        work=x.numel(),
    )
    return out.to(x.dtype)


class _Drop(torch.autograd.Function):
    """Linear in x, and its own transpose: every derivative is the same function again."""

    @staticmethod
    def forward(ctx, x, rate, seed):
        ctx.rate, ctx.seed = rate, seed
        return _dropped(x, rate, seed)

    @staticmethod
    def backward(ctx, gradient):
        return drop(gradient, ctx.rate, ctx.seed), None, None

    @staticmethod
    def jvp(ctx, tangent, *_):
        return drop(tangent, ctx.rate, ctx.seed)
