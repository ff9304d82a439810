"""Edges for torch.export: everything in plain torch, and no shape that depends on a value."""

from __future__ import annotations

import torch
from torch import Tensor

from .edges import Edges


class TracedEdges(Edges):
    """The caller's self-loops stay in the list, silenced, so that its length is known without looking."""

    def __init__(self, edge_index: Tensor, targets: int, loops: int | None):
        source, target = edge_index[0].long(), edge_index[1].long()
        self.targets, self.loops, self.given = targets, loops, edge_index.shape[1]
        self.rows, self.into = targets, target
        if loops is not None:
            self.rows = targets + 1
            self.silent = source == target
            every = torch.arange(loops, device=source.device)
            self.into = torch.cat([torch.where(self.silent, targets, target), every])
            source, target = torch.cat([source, every]), torch.cat([target, every])
        self.source, self.target = source, target

    def _kept(self, given):
        return given

    def _loop_weights(self, given, fill):
        at = torch.where(
            self.silent, self.source[: self.given], self.loops
        )  # all but loops: one past the end
        return given.new_full((self.loops + 1,), fill).scatter(0, at, given)[: self.loops]
