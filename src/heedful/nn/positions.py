"""Positions that learn, or that are added to the input.

`RelativePosition`, `T5Position` and `AlibiPosition` are the operator's positions with numbers that learn:
pass them wherever `heedful.Relative`, `T5Buckets` or `Alibi` would go, to a layer or to `attend` itself.
`LearnedPositions` and `SinusoidalPositions` are added to the tokens before the first layer.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..attention.position import Alibi, Position, Relative, T5Buckets, toeplitz_block
from .checks import check_count


class _Learned(nn.Module, Position):
    """What positions with parameters share: called with lengths, they return the bias they add."""

    heads: int

    def _learned(self) -> bool:
        return any(parameter.requires_grad for parameter in self.parameters())

    def forward(self, queries: int, keys: int | None = None) -> Tensor:
        """p_{i−j} as a matrix, (heads, queries, keys); with unequal lengths the ends align."""
        keys = queries if keys is None else keys
        like = next(self.parameters())
        table = self.table(queries, keys, self.heads, like)
        return toeplitz_block(table, (0, queries), (0, keys), keys)

    def __repr__(self) -> str:
        return nn.Module.__repr__(self)


class RelativePosition(_Learned, Relative):
    """log sim + p_{i−j}, p learned for each head and distance up to `reach`; beyond it the last one holds.

    >>> import torch, heedful
    >>> position = heedful.nn.RelativePosition(heads=4, reach=16)
    >>> q, k, v = torch.randn(3, 4, 100, 8)
    >>> heedful.attend(q, k, v, position=position).shape
    torch.Size([4, 100, 8])
    >>> position(100).shape                                  # the bias it adds to the scores
    torch.Size([4, 100, 100])
    """

    def __init__(self, heads: int, reach: int):
        check_count("RelativePosition", heads=heads, reach=reach)
        nn.Module.__init__(self)
        Relative.__init__(self, nn.Parameter(torch.zeros(heads, 2 * reach + 1)), clamp=True)
        self.heads, self.reach = heads, reach

    def extra_repr(self) -> str:
        return f"heads={self.heads}, reach={self.reach}"


class T5Position(_Learned, T5Buckets):
    """log sim + p_bucket(i−j), p learned for each head and bucket: far distances share one.

    `bidirectional=False` gives all buckets to the past; use it with `Causal()`.

    >>> import torch, heedful
    >>> position = heedful.nn.T5Position(heads=4, buckets=32)
    >>> layer = heedful.nn.Attention(32, heads=4, position=position)
    >>> layer(torch.randn(2, 300, 32)).shape
    torch.Size([2, 300, 32])
    """

    def __init__(self, heads: int, buckets: int = 32, *, bidirectional: bool = True, max_distance: int = 128):
        check_count("T5Position", heads=heads, buckets=buckets)
        nn.Module.__init__(self)
        T5Buckets.__init__(
            self,
            nn.Parameter(torch.zeros(heads, buckets)),
            bidirectional=bidirectional,
            max_distance=max_distance,
        )
        self.heads, self.buckets = heads, buckets

    def extra_repr(self) -> str:
        return f"heads={self.heads}, buckets={self.buckets}, bidirectional={self.bidirectional}"


class AlibiPosition(_Learned, Alibi):
    """log sim − m_h·|i − j|, slopes m learned, from the published 2^(−8h/heads) on.

    >>> import heedful
    >>> heedful.nn.AlibiPosition(heads=2)(3)[0]
    tensor([[-0.0000, -0.0625, -0.1250],
            [-0.0625, -0.0000, -0.0625],
            [-0.1250, -0.0625, -0.0000]], grad_fn=<SelectBackward0>)
    """

    def __init__(self, heads: int):
        check_count("AlibiPosition", heads=heads)
        nn.Module.__init__(self)
        Alibi.__init__(self, nn.Parameter(Alibi().rates(heads, torch.zeros(()))))
        self.heads = heads

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


class LearnedPositions(nn.Module):
    """x_i + p_i, with p a learned row for each of `length` positions.

    >>> import torch, heedful
    >>> heedful.nn.LearnedPositions(length=128, dim=32)(torch.randn(2, 100, 32)).shape
    torch.Size([2, 100, 32])
    """

    def __init__(self, length: int, dim: int):
        check_count("LearnedPositions", length=length, dim=dim)
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, dim))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x of shape (..., length, dim), its first row at position `start`."""
        stop = start + x.shape[-2]
        if stop > len(self.weight):
            raise ValueError(
                f"LearnedPositions: got positions up to {stop - 1}, but has {len(self.weight)} of them. Pass "
                f"fewer tokens, or use positions that reach any length (rotary, ALiBi, sinusoidal)."
            )
        return x + self.weight[start:stop]

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, {self.weight.shape[1]}"


class SinusoidalPositions(nn.Module):
    """x_i + p_i, p_i = (sin iθ_m, cos iθ_m) interleaved over m, θ_m = base^(−2m/dim), for any length.

    >>> import torch, heedful
    >>> heedful.nn.SinusoidalPositions(dim=4)(torch.zeros(1, 2, 4))
    tensor([[[0.0000, 1.0000, 0.0000, 1.0000],
             [0.8415, 0.5403, 0.0100, 0.9999]]])
    """

    def __init__(self, dim: int, *, base: float = 10000.0):
        check_count("SinusoidalPositions", dim=dim)
        if dim % 2:
            raise ValueError(
                f"SinusoidalPositions(dim={dim}): sines and cosines come in pairs; use an even one."
            )
        super().__init__()
        self.dim, self.base = dim, base

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x of shape (..., length, dim), its first row at position `start`."""
        i = torch.arange(x.shape[-2], device=x.device, dtype=torch.float64) + start
        rate = self.base ** (-torch.arange(0, self.dim, 2, device=x.device, dtype=torch.float64) / self.dim)
        angle = i[:, None] * rate
        return x + torch.stack([angle.sin(), angle.cos()], -1).flatten(-2).to(x.dtype)

    def extra_repr(self) -> str:
        return f"{self.dim}, base={self.base:g}"
