"""Edges grouped by listener: a heedful `Graph`, made once for an edge_index and kept while that lives."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ...attention.transforms import lasting
from ...graphs import Graph
from ...graphs.structure import Slots, Structure
from .cache import Cache, untraced
from .edges import Edges


class GroupedEdges(Edges):
    """`Edges` by heedful's kernels. `graph` has the caller's edges that are left, in order, then loops."""

    def __init__(
        self,
        graph: Graph,
        *,
        given: int,
        loops: int | None = None,
        kept: Tensor | None = None,
        existing: Tensor | None = None,
        remember: bool = True,
    ):
        self.graph, self.given, self.loops = graph, given, loops
        self.targets = self.rows = graph.targets
        self.kept = kept  # numbers of the caller's edges that are no loops; None: all
        self.existing = existing  # number of the caller's loop at each node, −1 where there was none
        self._constants = Cache(limit=4) if remember else None

    # The graph makes these when first asked: attention does not need them.
    source = property(lambda self: self.graph.source)  # type: ignore[assignment]
    target = into = property(lambda self: self.graph.target)  # type: ignore[assignment]

    # What edges carry

    def _kept(self, given):
        return given if self.kept is None else given.index_select(0, self.kept)

    def _loop_weights(self, given, fill):
        filled = given.new_full((self.loops,), fill)
        if self.existing is None:
            return filled
        return torch.where(self.existing < 0, filled, given[self.existing.clamp(min=0)])

    def normalized(self, given, fill, dtype):
        if self._constants is None or (given is not None and given.requires_grad):
            return self._normalized("symmetric", self.weights(given, fill, dtype))
        return self._remembered("symmetric", given, fill, dtype)

    @untraced
    def _remembered(self, kind: str, given: Tensor | None, fill: float, dtype: torch.dtype) -> Tensor:
        """Normalised weights that are constants, made once."""

        def make() -> Tensor:
            with lasting():
                if given is not None:
                    return self._normalized(kind, self.weights(given, fill, dtype))
                wide = torch.promote_types(dtype, torch.float32)  # bfloat16 cannot count past 256
                return self._normalized(kind, self.weights(None, fill, wide)).to(dtype)

        assert self._constants is not None
        owner = self.graph.structure if given is None else given
        return self._constants.get(owner, (kind, fill, dtype), make)

    def _normalized(self, kind: str, weight: Tensor) -> Tensor:
        return self.graph.with_edges(weight=weight).normalized(kind).attributes["weight"]

    def _reduce(self, values, kind):
        if kind == "mul":
            return super()._reduce(values, kind)
        return self._incoming.aggregate(values, "sum" if kind == "add" else kind)

    @cached_property
    def _incoming(self) -> Graph:
        """Each node hears the edges into it, loops left out: edges are the sources of this graph."""
        with lasting():
            rowptr, _, edge = self.graph.structure.forward
            edges = self.graph.edges - (self.loops or 0)
            loops_before = torch.arange(len(rowptr), device=rowptr.device).clamp(max=self.loops or 0)
            edge = edge[edge < edges]
            every = torch.arange(edges + 1, dtype=edge.dtype, device=edge.device)
            forward = Slots((rowptr - loops_before).to(rowptr.dtype), edge, edge)
            backward = Slots(every, self.target[:edges].to(edge.dtype), every[:-1])
            return Graph(Structure(forward, edges, backward=backward))

    # Listening

    def propagate(self, x, weight):
        return self.graph.with_edges(weight=weight).propagate(x)

    def aggregate(self, x, kind):
        if kind == "mean" and self._constants is not None:
            return self.propagate(x, self._remembered("row", None, 1.0, x.dtype))
        if kind == "var":
            return self.graph.aggregate(x, "std").square()
        return self.graph.aggregate(x, kind)


def group(edge_index: Tensor, sources: int, targets: int, loops: int | None) -> GroupedEdges:
    """Sort the edges into a graph, loops treated. It holds no view of edge_index, which is to die freely."""
    with lasting():
        source, target = edge_index[0].long(), edge_index[1].long()
        given, kept, existing = len(source), None, None
        if loops is not None:
            looped = source == target
            if looped.any():
                kept, number = ((~looped).nonzero().squeeze(1), looped.nonzero().squeeze(1))
                existing = torch.full((loops,), -1, device=source.device)
                existing = existing.scatter_reduce(0, source[number], number, "amax")  # of several, the last
                source, target = source[kept], target[kept]
            every = torch.arange(loops, device=source.device)
            source, target = torch.cat([source, every]), torch.cat([target, every])
        graph = Graph(Structure.from_edges(source, target, sources, targets))
    return GroupedEdges(graph, given=given, loops=loops, kept=kept, existing=existing)
