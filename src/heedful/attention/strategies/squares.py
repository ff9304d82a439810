"""What a pattern allows, looked at a band of listeners at a time and cut into squares.

All pairs of a long pattern would not fit into memory, and most need no look: a band hears a run of keys.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from ..neighbors import Neighbors

AT_ONCE = 1 << 27  # pairs looked at together, a byte each


def squares(
    neighbors: Neighbors, queries: int, keys: int, side: int, device: torch.device
) -> Iterator[tuple[int, int, Tensor]]:
    """Each band's first row and first column of squares; whom they allow to hear whom, (rows of squares,
    columns of squares, side, side). Beyond the last query and key nobody is.
    """
    for rows, columns in _bands(neighbors, queries, keys, side):
        i = torch.arange(*rows, device=device)[:, None] + (keys - queries)
        j = torch.arange(*columns, device=device)[None, :]
        allowed = neighbors.allows(i, j, queries, keys).expand(i.shape[0], j.shape[1])
        allowed = F.pad(allowed, (0, -j.shape[1] % side, 0, -i.shape[0] % side))
        cut = allowed.unflatten(0, (-1, side)).unflatten(2, (-1, side)).transpose(1, 2)
        yield rows[0] // side, columns[0] // side, cut


def _bands(
    neighbors: Neighbors, queries: int, keys: int, side: int
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Runs of rows, each with the run of keys that it may hear: whole squares, AT_ONCE pairs if it can be."""
    top, height = 0, queries
    while top < queries:
        height = min(2 * height, -(-(queries - top) // side) * side)
        while True:
            rows = top, min(top + height, queries)
            first, last = neighbors.key_range(rows, queries, keys)
            if height <= side or height * (last - first) <= AT_ONCE:
                break
            height = max(side, height // 2 // side * side)
        if first < last:
            yield rows, (first // side * side, min(-(-last // side) * side, keys))
        top += height
