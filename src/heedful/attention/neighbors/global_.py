"""Chosen positions that hear and are heard by all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..problem import NeighborFacts
from ..transforms import fixed
from .base import Neighbors, whole_numbers


class Global(Neighbors):
    """Chosen positions hear everyone and are heard by everyone; nobody else is.

    Combine it: Window(64) | Global([0]).

    >>> from heedful import Global, Window
    >>> (Window(1) | Global([0])).facts(4, 4).pairs >= 14
    True
    """

    def __init__(self, indices: Sequence[int] | Tensor):
        indices = sorted(set(whole_numbers("Global(indices)", indices)))
        if not indices or indices[0] < 0:
            raise ValueError(f"Global(indices={indices}): takes one or more positions, none negative.")
        self.indices = tuple(indices)
        self.signature = ("Global", self.indices)

    def check(self, queries, keys, heads):
        if self.indices[-1] >= keys:
            raise ValueError(
                f"{self}: position {self.indices[-1]} is out of range for {keys} keys (0 to {keys - 1})."
            )

    def _chosen(self, position: Tensor) -> Tensor:
        return (position[..., None] == torch.tensor(self.indices, device=position.device)).any(-1)

    def allows(self, i, j, queries, keys):
        return self._chosen(i) | self._chosen(j)

    def facts(self, queries, keys):
        listening = sum(index >= keys - queries for index in self.indices)
        count = len(self.indices)
        pairs = float(listening * keys + (queries - listening) * count)
        return NeighborFacts(self.__repr__(), pairs, interval=None, complete=pairs == queries * keys)

    def pairs(self, queries, keys, device):
        positions = torch.arange(keys, device=device)
        standing = torch.arange(keys - queries, keys, device=device)  # below 0 where queries outnumber keys
        chosen = torch.tensor(self.indices, device=device)
        listeners, others = standing[self._chosen(standing)], standing[~self._chosen(standing)]
        i = torch.cat([listeners.repeat_interleave(keys), others.repeat_interleave(len(chosen))])
        j = torch.cat([positions.repeat(len(listeners)), chosen.repeat(len(others))])
        return i, j

    def __repr__(self):
        if len(self.indices) > 4:
            return f"Global({len(self.indices)} positions)"
        # One by one, for of a list a compiler makes a name that is no constant.
        return f"Global([{', '.join(str(fixed(index)) for index in self.indices)}])"
