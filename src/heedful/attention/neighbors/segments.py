"""Runs that hear only themselves: packed sequences, batches of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ..problem import NeighborFacts
from ..transforms import fixed
from .base import Neighbors, whole_numbers


class Segments(Neighbors):
    """Block-diagonal: positions are cut into runs of the given lengths, and nobody hears another run.

    For packed sequences and batches of graphs. The lengths must add up to the number of keys.

    >>> from heedful import Segments
    >>> Segments([2, 3]).facts(5, 5).pairs
    13.0
    """

    def __init__(self, lengths: Sequence[int] | Tensor):
        lengths = whole_numbers("Segments(lengths)", lengths)
        if not lengths or min(lengths) < 0:
            raise ValueError(f"Segments(lengths={lengths}): takes one or more lengths, none negative.")
        self.lengths = tuple(lengths)
        self._ends = list(accumulate(self.lengths))
        self.signature = ("Segments", self.lengths)

    def check(self, queries, keys, heads):
        if self._ends[-1] != keys:
            raise ValueError(f"{self}: the lengths add up to {self._ends[-1]}, but there are {keys} keys.")
        if queries > keys:
            raise ValueError(
                f"{self}: {queries} queries for {keys} keys; the first queries would stand in no segment."
            )

    def _segment(self, position: Tensor) -> Tensor:
        return torch.searchsorted(torch.tensor(self._ends, device=position.device), position, right=True)

    def allows(self, i, j, queries, keys):
        return self._segment(i) == self._segment(j)

    def facts(self, queries, keys):
        first = keys - queries
        pairs = sum(
            float(length) * max(0, end - max(end - length, first))
            for length, end in zip(self.lengths, self._ends, strict=True)
        )
        longest = max(self.lengths)
        return NeighborFacts(
            self.__repr__(),
            pairs,
            interval=None,
            reach=(-(longest - 1), longest - 1),
            block=longest,
            complete=longest == keys,
        )

    def key_range(self, rows, queries, keys):
        if rows[0] >= rows[1]:
            return (0, 0)
        ends = torch.tensor(self._ends)
        first, last = (
            torch.searchsorted(ends, row + keys - queries, right=True).item()
            for row in (rows[0], rows[1] - 1)
        )
        return (self._ends[first] - self.lengths[first], self._ends[last])

    def pairs(self, queries, keys, device):
        i = torch.arange(keys - queries, keys, device=device)
        segment = self._segment(i)
        count = torch.tensor(self.lengths, device=device)[segment]
        start = torch.tensor(self._ends, device=device)[segment] - count
        listener = torch.repeat_interleave(i, count)
        before = torch.cumsum(count, 0) - count
        return listener, torch.arange(listener.numel(), device=device) - torch.repeat_interleave(
            before - start, count
        )

    def __repr__(self):
        if len(self.lengths) <= 4:
            return f"Segments({[fixed(length) for length in self.lengths]})"
        return f"Segments({len(self.lengths)} runs)"
