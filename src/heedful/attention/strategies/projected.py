"""Linformer: keys and values projected to `rank` rows along their length, then attended to exactly.

O(N·rank). Without given projections, neighbouring positions are averaged: exact when keys are constant over
each run averaged.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..neighbors import Everyone
from .base import Call, Strategy
from .fused import Fused
from .reference import Reference


class Projected(Strategy):
    name = "projected"
    exact = False

    def __init__(
        self, rank: int = 128, *, key_projection: Tensor | None = None, value_projection: Tensor | None = None
    ):
        if rank < 1:
            raise ValueError(f"Projected(rank={rank}): must be 1 or more.")
        self.rank, self.key_projection, self.value_projection = rank, key_projection, value_projection

    def accepts(self, problem):
        if problem.similarity.kind not in ("dot", "power"):
            return f"{problem.similarity.name}: projected keys need a similarity of dot products"
        if problem.position is not None:
            return f"{problem.position.name} loses its distances when keys are mixed"
        if not problem.neighbors.complete:
            return f"{problem.neighbors.name} cannot be told apart when keys are mixed"
        if problem.dropout:
            return "dropout needs the weight of each pair"
        if problem.keys <= self.rank and self.key_projection is None:
            return f"{problem.keys} keys are no more than the rank, {self.rank}"
        return None

    def cost(self, problem):
        short = problem.replace(keys=self.rank)
        return self._way(problem.similarity.kind).cost(short)

    def _way(self, kind: str) -> Strategy:
        return Fused() if kind == "dot" else Reference()

    def run(self, call: Call):
        key = self._project(call.key, self.key_projection, "key_projection")
        value = self._project(call.value, self.value_projection, "value_projection")
        return self._way(call.similarity.kind).run(replace(call, key=key, value=value, neighbors=Everyone()))

    def _project(self, x: Tensor, projection: Tensor | None, name: str) -> Tensor:
        if projection is not None:
            if projection.shape[-1] != x.shape[-2]:
                raise ValueError(
                    f"Projected({name}=…): shape {tuple(projection.shape)} takes {projection.shape[-1]} "
                    f"keys, got {x.shape[-2]}."
                )
            return projection.to(x) @ x
        length = x.shape[-2]
        runs = torch.arange(length, device=x.device) * self.rank // length
        total = x.new_zeros(x.shape[:-2] + (self.rank, x.shape[-1])).index_add(-2, runs, x)
        ends = (torch.arange(self.rank + 1, device=x.device) * length + self.rank - 1) // self.rank
        return total / ends.diff().to(x.dtype)[:, None]

    def __repr__(self):
        return f"Projected(rank={self.rank})"
