"""out_n = x_n / (1 − rate) if the n-th number of the seed's stream says so, else 0: dropout without a mask.

`keep_mask` (head 0, counted by position) decides, so nothing is stored: the backward pass asks again. Torch's
own dropout draws its numbers one after another, 12 ns each; hashed, they come out in vectors, 0.5 ns each.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from . import batching
from .dropout import kept_scale, threshold
from .parallel import over_rows

CHUNK = 1 << 15  # numbers a piece of work
ALL = -np.inf  # no number is below


def drop(x: Tensor, rate: float, seed: Tensor) -> Tensor:
    """Zero each number of x with probability `rate`, scale up the rest; `seed` is one int64. CPU, eager."""
    return batching.apply(_Drop, x, rate, seed)


def drop_positive(x: Tensor, rate: float, seed: Tensor) -> Tensor:
    """drop(relu(x)) in one pass, and its gradient in one: what the result tells need not be hashed again."""
    return batching.apply(_DropPositive, x, rate, seed)


def _dropped(x: Tensor, rate: float, seed: Tensor, floor: float = ALL) -> Tensor:
    from .drop_numba import drop_rows

    x = x.contiguous()
    bounds = np.arange(0, x.numel() + CHUNK, CHUNK).clip(max=x.numel())
    return _filled(drop_rows, bounds, x.view(-1), seed, rate, floor, x.numel()).view(x.shape)


def _dropped_copies(x: Tensor, rate: float, seeds: Tensor, floor: float = ALL) -> Tensor:
    """(R, S, F) of x (R, S or 1, F) and S seeds."""
    from .drop_numba import drop_copies

    shape = x.shape[0], len(seeds), x.shape[2]
    return _filled(drop_copies, _bounds(*shape), x.contiguous(), seeds, rate, floor, shape)


@lru_cache(64)
def _bounds(rows: int, copies: int, features: int) -> np.ndarray:
    """Rows of (R, S, F), so many at a time as make a piece of work."""
    step = max(1, CHUNK // max(1, copies * features))
    return np.arange(0, rows + step, step).clip(max=rows)


def _filled(kernel, bounds: np.ndarray, x: Tensor, seeds: Tensor, rate: float, floor: float, shape) -> Tensor:
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    source = wide.detach().numpy()
    out = torch.empty(shape, dtype=wide.dtype)
    over_rows(
        kernel,
        bounds,
        source,
        seeds.contiguous().numpy(),
        np.uint64(threshold(rate)),
        source.dtype.type(kept_scale(rate)),
        source.dtype.type(floor),
        out.numpy(),
        work=out.numel(),
    )
    return out.to(x.dtype)


class _Drop(torch.autograd.Function):
    """Linear in x, and its own transpose: every derivative is the same function again."""

    @staticmethod
    def forward(x, rate, seed):
        return _dropped(x, rate, seed)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.rate, seed = inputs
        ctx.shared = x.dim() == 3 and x.shape[1] == 1
        ctx.save_for_backward(seed)
        ctx.save_for_forward(seed)

    @staticmethod
    def backward(ctx, gradient):
        return drop(gradient, ctx.rate, *ctx.saved_tensors), None, None

    @staticmethod
    def jvp(ctx, tangent, *_):
        return drop(tangent, ctx.rate, *ctx.saved_tensors)

    @staticmethod
    def vmap(info, in_dims, x, rate, seed):
        return _of_copies(_Copies, info, in_dims, x, rate, seed)


def _of_copies(kind, info, in_dims, x: Tensor, rate: float, seed: Tensor) -> tuple[Tensor, int]:
    """Copies count from 0 each, so they drop what they would drop alone. They stay where they lie in memory;
    where they share x they go last, as sums over edges want their weights.
    """
    seeds = seed.expand(info.batch_size, 1) if in_dims[2] is None else seed.movedim(in_dims[2], 0)
    if in_dims[0] is None:
        place, copies = x.dim(), 1
        before, after = x.shape, torch.Size()
    else:
        step, copies = x.stride(in_dims[0]), info.batch_size
        place = sum(other > step for n, other in enumerate(x.stride()) if n != in_dims[0])
        x = x.movedim(in_dims[0], place)
        before, after = x.shape[:place], x.shape[place + 1 :]
    out = batching.apply(kind, x.reshape(before.numel(), copies, after.numel()), rate, seeds.reshape(-1))
    return out.view(*before, info.batch_size, *after), place


class _Copies(_Drop):
    """The same for x (R, S or 1, F) and S seeds: copies between the rows and the features."""

    @staticmethod
    def forward(x, rate, seeds):
        return _dropped_copies(x, rate, seeds)

    @staticmethod
    def backward(ctx, gradient):
        found = batching.apply(_Copies, gradient, ctx.rate, *ctx.saved_tensors)
        return found.sum(1, keepdim=True) if ctx.shared else found, None, None

    @staticmethod
    def jvp(ctx, tangent, *_):
        return batching.apply(_Copies, tangent, ctx.rate, *ctx.saved_tensors)

    @staticmethod
    def vmap(info, in_dims, x, rate, seeds):
        return _one_by_one(_Copies, info, in_dims, x, rate, seeds)


def _one_by_one(kind, info, in_dims, x: Tensor, rate: float, seeds: Tensor) -> tuple[Tensor, int]:
    """A vmap in a vmap."""
    parts = [
        [t] * info.batch_size if dim is None else t.unbind(dim)
        for t, dim in ((x, in_dims[0]), (seeds, in_dims[2]))
    ]
    return torch.stack([kind.apply(x, rate, own) for x, own in zip(*parts, strict=True)]), 0


class _DropPositive(torch.autograd.Function):
    """Its derivatives let through what is more than 0 in the result, and scale it."""

    @staticmethod
    def forward(x, rate, seed):
        return _dropped(x, rate, seed, 0.0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.rate, _ = inputs
        ctx.shared = x.dim() == 3 and x.shape[1] == 1
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, gradient):
        return _let_through(gradient, *ctx.saved_tensors, kept_scale(ctx.rate)), None, None

    @staticmethod
    def jvp(ctx, tangent, *_):
        return _let_through(tangent, *ctx.saved_tensors, kept_scale(ctx.rate))

    @staticmethod
    def vmap(info, in_dims, x, rate, seed):
        return _of_copies(_PositiveCopies, info, in_dims, x, rate, seed)


class _PositiveCopies(_DropPositive):
    """The same for x (R, S or 1, F) and S seeds."""

    @staticmethod
    def forward(x, rate, seeds):
        return _dropped_copies(x, rate, seeds, 0.0)

    @staticmethod
    def backward(ctx, gradient):
        found = _let_through(gradient, *ctx.saved_tensors, kept_scale(ctx.rate))
        return found.sum(1, keepdim=True) if ctx.shared else found, None, None

    @staticmethod
    def vmap(info, in_dims, x, rate, seeds):
        return _one_by_one(_PositiveCopies, info, in_dims, x, rate, seeds)


def _let_through(gradient: Tensor, kept: Tensor, scale: float) -> Tensor:
    """scale · gradient where `kept` is more than 0. A gradient of copies is read where it lies."""
    plain = kept.dtype in (torch.float32, torch.float64) and not torch.is_grad_enabled()
    watched = torch._C._functorch.maybe_current_level() is not None
    if watched or not plain or gradient.dtype != kept.dtype:
        return torch.where(kept <= 0, 0, gradient * scale)
    from .drop_numba import let_through

    features = max(1, kept.shape[-1]) if kept.dim() else 1
    shape = kept.shape if kept.dim() == 3 else (kept.numel() // features, 1, features)
    swapped = kept.dim() == 3 and not gradient.is_contiguous() and gradient.transpose(0, 1).is_contiguous()
    gradient = gradient.transpose(0, 1) if swapped else gradient.contiguous().view(shape)
    out = torch.empty(shape, dtype=kept.dtype)
    over_rows(
        let_through,
        _bounds(*shape),
        gradient.detach().numpy(),
        kept.detach().contiguous().view(shape).numpy(),
        out.numpy().dtype.type(scale),
        swapped,
        out.numpy(),
        work=out.numel(),
    )
    return out.view(kept.shape)
