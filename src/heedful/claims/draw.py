"""What a claim draws its instances from: one seed, double precision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from ..graphs import Graph

T = TypeVar("T")


class Draw:
    """Random numbers, shapes and graphs of one seed.

    `runs` is where the lab keeps its results. `first` is true at the first of several seeds: what no seed can
    change, such as a count of operations, is measured then.

    >>> draw = Draw(0)
    >>> draw.normal(2, 3).dtype, 2 <= draw.integer(2, 5) < 5
    (torch.float64, True)
    """

    def __init__(self, seed: int, runs: Path = Path("runs"), *, first: bool = True):
        self.seed, self.runs, self.first = seed, Path(runs), first
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, std: float = 1.0) -> Tensor:
        return std * torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    def integer(self, low: int, high: int) -> int:
        """low ≤ n < high."""
        return int(torch.randint(low, high, (1,), generator=self.generator))

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.generator)

    def choice(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options))]

    def order(self, count: int) -> Tensor:
        """A permutation."""
        return torch.randperm(count, generator=self.generator)

    def rotation(self, size: int) -> Tensor:
        """A random orthogonal matrix."""
        basis, upper = torch.linalg.qr(self.normal(size, size))
        return basis * upper.diagonal().sign()

    def graph(self, nodes: int, edges: int) -> Graph:
        """Undirected, without loops, every node with a neighbour: a ring and so many further edges."""
        ring = torch.arange(nodes)
        far = self.integers(nodes, 2, edges)
        far = far[:, far[0] != far[1]]
        source, target = torch.cat([ring, far[0]]), torch.cat([(ring + 1) % nodes, far[1]])
        return Graph.from_edges(source, target, nodes=nodes).undirected().coalesce().with_edges(weight=None)
