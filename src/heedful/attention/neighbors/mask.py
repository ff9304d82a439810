"""Any boolean tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from ..problem import NeighborFacts
from ..transforms import broadcasts, sizes
from .base import Identity, Neighbors


class Mask(Neighbors):
    """Any boolean tensor that broadcasts to (..., heads, queries, keys); True means i heeds j.

    >>> import torch, heedful
    >>> x = torch.eye(3)
    >>> out = heedful.attend(x, x, x, neighbors=heedful.Mask(torch.eye(3, dtype=torch.bool)))
    >>> torch.equal(out, x)     # everyone hears only itself
    True
    """

    def __init__(self, allowed: Tensor):
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool or allowed.dim() < 2:
            got = (
                f"{allowed.dtype} of shape {tuple(allowed.shape)}"
                if isinstance(allowed, Tensor)
                else type(allowed).__name__
            )
            raise TypeError(
                f"Mask(allowed): takes a boolean tensor of shape (..., queries, keys), got {got}."
            )
        self.allowed = allowed
        self.signature = ("Mask", Identity(allowed))

    @property
    def shape_key(self):
        return ("Mask", tuple(self.allowed.shape), self.allowed.device)

    def check(self, queries, keys, heads):
        for name, size, wanted in zip(
            ("queries", "keys"), self.allowed.shape[-2:], (queries, keys), strict=True
        ):
            if not broadcasts(size, wanted):
                raise ValueError(
                    f"Mask of shape {tuple(self.allowed.shape)}: {size} {name}, but the call has {wanted}."
                )

    def carried(self):
        return [("Mask", self.allowed, 2)]

    def allows(self, i, j, queries, keys):
        allowed = self.allowed.expand(*self.allowed.shape[:-2], queries, keys)
        row = i - (keys - queries)
        # FlexAttention traces the first only.
        return allowed[row, j] if allowed.dim() == 2 else allowed[..., row, j]

    def mask(self, tile):
        allowed = self.allowed.expand(*self.allowed.shape[:-2], tile.queries, tile.keys)
        return allowed[..., slice(*tile.rows), slice(*tile.columns)]

    def facts(self, queries, keys):
        shared = self.allowed.dim() == 2
        return NeighborFacts(
            self.__repr__(),
            float(queries) * keys,
            interval=None,
            complete=False,
            listed=shared,
            lasting=False,
        )

    def pairs(self, queries, keys, device):
        i, j = self.allowed.expand(queries, keys).nonzero(as_tuple=True)
        return i + (keys - queries), j

    def __repr__(self):
        return f"Mask({sizes(self.allowed)})"
