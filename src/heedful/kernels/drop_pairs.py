"""Dropout of attention weights: whether pair (i, j) of a head is kept, `keep_mask` says; nothing is kept."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .dropout import kept_scale, threshold
from .parallel import over_rows


def drop_pairs(weights: Tensor, rate: float, seed: Tensor, first: tuple[int, int], keys: int) -> Tensor:
    """Zero weights (..., rows, columns) at random and scale up the rest. CPU, eager.

    The block's first row and column are `first`; a pair counts as i·keys + j, a head by its place among all
    leading dimensions.
    """
    return _DropPairs.apply(weights, rate, seed, first[0] * keys + first[1], keys)


def _dropped(weights: Tensor, rate: float, seed: Tensor, start: int, keys: int) -> Tensor:
    from .drop_pairs_numba import drop_rows

    weights = weights.contiguous()
    out = torch.empty_like(weights)
    *lead, rows, columns = weights.shape
    heads = int(np.prod(lead, dtype=np.int64))
    if not weights.numel():
        return out
    source = weights.detach().view(-1, columns).numpy()
    over_rows(
        drop_rows,
        np.arange(heads * rows + 1),
        source,
        seed.numpy(),
        heads,
        start,
        keys,
        np.uint64(threshold(rate)),
        source.dtype.type(kept_scale(rate)),
        out.view(-1, columns).numpy(),
        work=weights.numel(),
    )
    return out


class _DropPairs(torch.autograd.Function):
    """Linear in the weights, and its own transpose: every derivative is the same function again."""

    @staticmethod
    def forward(ctx, weights, *call):
        ctx.call = call
        return _dropped(weights, *call)

    @staticmethod
    def backward(ctx, gradient):
        return _DropPairs.apply(gradient, *ctx.call), None, None, None, None
