"""Queries and keys turned by their positions."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ..given import real, whole
from ..transforms import forward_mode_active, lasting, traced
from .base import Position


class Rotary(Position):
    """Turns coordinate pair m of q_i by i·θ_m, of k_j by j·θ_m, θ_m = base^(−2m/d): q·k depends on i − j.

    `interleaved` pairs neighbours (0,1), (2,3) …; otherwise the first half pairs with the second. `dims`
    turns only the first so many coordinates.

    >>> import torch, heedful
    >>> x = torch.randn(1, 7, 4)
    >>> heedful.attend(x, x, x, position=heedful.Rotary()).shape
    torch.Size([1, 7, 4])
    """

    rotates = True

    def __init__(self, base: float = 10000.0, *, interleaved: bool = True, dims: int | None = None):
        real("Rotary(base", base)
        if base <= 0:
            raise ValueError(f"Rotary(base={base}): must be positive.")
        dims = None if dims is None else whole("Rotary(dims", dims, 2)
        if dims is not None and dims % 2:
            raise ValueError(f"Rotary(dims={dims}): must be even, 2 or more.")
        self.base, self.interleaved, self.dims = base, interleaved, dims
        self.signature = ("Rotary", base, interleaved, dims)

    def facts(self):
        return None  # it acts on query and key; what is left to plan has no position

    def check(self, reach, heads, dim):
        if self.dims is not None and self.dims > dim:
            raise ValueError(f"{self}: turns dims={self.dims} coordinates, but query and key have {dim}.")
        if self.dims is None and dim % 2:
            raise ValueError(
                f"{self}: turns pairs of coordinates, but query and key have {dim}; use an even number, or "
                f"dims={dim - 1} to leave the last alone."
            )

    def rotate(self, x: Tensor, start: int | Tensor) -> Tensor:
        """x of shape (..., length, dim), its first row at position `start`."""
        dims, length = self.dims or x.shape[-1], x.shape[-2]
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        turned = x[..., :dims].to(wide)
        if traced() or forward_mode_active() or isinstance(start, Tensor):
            turned = self._turn(turned, torch.arange(length, device=x.device, dtype=wide) + start)
        else:
            turned = self._turn_complex(turned, _turns(self.base, dims, int(start), length, x.device, wide))
        turned = turned.to(x.dtype)
        return turned if dims == x.shape[-1] else torch.cat([turned, x[..., dims:]], -1)

    def _turn(self, x: Tensor, at: Tensor) -> Tensor:
        """Pairs (a, b) → (a cos − b sin, a sin + b cos)."""
        angle = _angles(self.base, x.shape[-1], at)
        cos, sin = angle.cos(), angle.sin()
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1) if self.interleaved else x.chunk(2, -1)
        a, b = a * cos - b * sin, a * sin + b * cos
        return torch.stack([a, b], -1).flatten(-2) if self.interleaved else torch.cat([a, b], -1)

    def _turn_complex(self, x: Tensor, turns: Tensor) -> Tensor:
        """The same as products of complex numbers, with fewer passes over memory."""
        if not self.interleaved:
            z = torch.complex(*x.chunk(2, -1)) * turns
            return torch.cat([z.real, z.imag], -1)
        pairs = x.unflatten(-1, (-1, 2))
        if pairs.stride(-1) != 1 or pairs.storage_offset() % 2 or any(n % 2 for n in pairs.stride()[:-1]):
            pairs = pairs.contiguous()
        return torch.view_as_real(torch.view_as_complex(pairs) * turns).flatten(-2)

    def turns(self, dims: int, length: int, like: Tensor) -> Tensor:
        """The complex numbers pairs are multiplied by at positions 0 … length − 1, (length, dims / 2)."""
        return _turns(self.base, dims, 0, length, like.device, like.dtype)

    def apply(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return self.rotate(query, key.shape[-2] - query.shape[-2]), self.rotate(key, 0)

    def __repr__(self):
        return f"Rotary(base={self.base:g})"


def _angles(base: float, dims: int, at: Tensor) -> Tensor:
    """i·θ_m for these positions i, (length, dims / 2)."""
    return at[:, None] * base ** (-torch.arange(0, dims, 2, device=at.device, dtype=at.dtype) / dims)


def _turns(base: float, dims: int, start: int, length: int, device, dtype) -> Tensor:
    """cos iθ_m + √−1 sin iθ_m for positions from `start` on; those from 0 on are remembered."""
    if start < 0:  # the first of more queries than keys
        angle = _angles(base, dims, torch.arange(start, start + length, device=device, dtype=dtype))
        return torch.complex(angle.cos(), angle.sin())
    room = max(64, 1 << (start + length - 1).bit_length())
    return _kept_turns(base, dims, room, device, dtype)[start : start + length]


@lru_cache(maxsize=32)
def _kept_turns(base: float, dims: int, length: int, device, dtype) -> Tensor:
    with lasting():
        angle = _angles(base, dims, torch.arange(length, device=device, dtype=dtype))
        return torch.complex(angle.cos(), angle.sin())
