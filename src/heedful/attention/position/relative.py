"""p_{i−j} from a table of all distances."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..transforms import sizes
from .base import Position, all_offsets, check_heads, check_numbers


class Relative(Position):
    r"""Adds p_{i−j}: entry L + (i − j) of a table with 2L + 1 entries, optionally one row a head.

    −inf silences a distance. Distances beyond L are an error, or use the outermost entries with `clamp=True`.

    >>> import torch, heedful
    >>> x = torch.arange(1.0, 6).view(5, 1)
    >>> only_previous = torch.tensor([-torch.inf, -torch.inf, 0.0])       # offsets −1, 0, 1
    >>> out = heedful.attend(x, x, x, position=heedful.Relative(only_previous), neighbors=heedful.Window(1))
    >>> out.flatten()
    tensor([0., 1., 2., 3., 4.])
    """

    def __init__(self, table: Tensor, *, clamp: bool = False):
        check_numbers("Relative(table)", table)
        if table.dim() not in (1, 2) or table.shape[-1] % 2 == 0:
            raise ValueError(
                f"Relative(table): got shape {tuple(table.shape)}; takes (2L+1,) or (heads, 2L+1), "
                f"entry L + (i−j), so the last dimension must be odd."
            )
        self.entries, self.clamp = table, clamp
        self.signature = ("Relative", tuple(table.shape), clamp, table.requires_grad, table.device)

    @property
    def limit(self) -> int:
        return self.entries.shape[-1] // 2

    def check(self, reach, heads, dim):
        if self.entries.dim() == 2:
            check_heads("Relative(table)", self.entries.shape[0], heads)
        if not self.clamp and max(reach) > self.limit:
            raise ValueError(
                f"Relative(table): {2 * self.limit + 1} entries reach distance {self.limit}, but distances "
                f"up to {max(reach)} occur. Give {2 * max(reach) + 1} entries, pass clamp=True, or narrow "
                f"neighbors to Window({max(1, self.limit)})."
            )

    def table(self, queries, keys, heads, like):
        offsets = all_offsets(queries, keys, like.device)
        table = torch.atleast_2d(self.entries).to(like.device, like.dtype)
        inside = table.index_select(-1, (offsets + self.limit).clamp(0, 2 * self.limit))
        return inside if self.clamp else inside.masked_fill(offsets.abs() > self.limit, -math.inf)

    def __repr__(self):
        return f"Relative({sizes(self.entries)}{', clamp' if self.clamp else ''})"
