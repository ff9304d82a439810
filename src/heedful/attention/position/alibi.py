"""−slope·|i − j|."""

from __future__ import annotations

import math
from numbers import Real

import torch
from torch import Tensor

from ..problem import PositionFacts
from ..transforms import fixed
from .base import Position, all_offsets, check_heads, check_numbers


class Alibi(Position):
    """Adds −slope·|i − j|. Without slopes: 2^(−8h/heads) for head h = 1 … heads, as published.

    >>> import torch, heedful
    >>> heedful.Alibi().table(1, 3, heads=1, like=torch.zeros(1))
    tensor([[-0.0000, -0.0039, -0.0078]])
    """

    def __init__(self, slopes: float | Tensor | None = None):
        if isinstance(slopes, Tensor):
            check_numbers("Alibi(slopes)", slopes, silent=False)
            if slopes.dim() > 1:
                raise ValueError(
                    f"Alibi(slopes): got shape {tuple(slopes.shape)}; takes one number, or one a head."
                )
        elif slopes is not None:
            if not isinstance(slopes, Real):
                raise TypeError(
                    f"Alibi(slopes): got {type(slopes).__name__}; takes a number, or a tensor of one a head."
                )
            if not math.isfinite(fixed(slopes)):
                raise ValueError(f"Alibi(slopes={slopes}): must be finite.")
        self.slopes = slopes
        self.signature = (
            "Alibi",
            ("tensor", tuple(slopes.shape), slopes.requires_grad, slopes.device)
            if isinstance(slopes, Tensor)
            else slopes,
        )

    def facts(self):
        return PositionFacts(self.__repr__(), decay=True, learned=self._learned(), per_head=self._per_head())

    def _per_head(self):
        return self.slopes is None or (isinstance(self.slopes, Tensor) and self.slopes.numel() > 1)

    def check(self, reach, heads, dim):
        if isinstance(self.slopes, Tensor) and self.slopes.dim() == 1:
            check_heads("Alibi(slopes)", self.slopes.numel(), heads)

    def rates(self, heads: int, like: Tensor) -> Tensor:
        """The slope of each head, (heads or 1,)."""
        if self.slopes is None:
            return torch.exp2(-8.0 * torch.arange(1, heads + 1, device=like.device, dtype=like.dtype) / heads)
        return torch.atleast_1d(torch.as_tensor(self.slopes, dtype=like.dtype, device=like.device))

    def table(self, queries, keys, heads, like):
        return -self.rates(heads, like)[:, None] * all_offsets(queries, keys, like.device).abs().to(
            like.dtype
        )

    def __repr__(self):
        return "Alibi()" if self.slopes is None else "Alibi(slopes)"
