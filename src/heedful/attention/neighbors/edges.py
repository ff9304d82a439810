"""A graph as a pattern."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from ...graphs import Graph
from ...graphs.structure import lasting, real
from ..problem import NeighborFacts, bucket
from ..transforms import exporting, traced
from .base import Identity, Neighbors


def _remembered(graph: Graph, what: str, find):
    """A fact about the edges alone, found once however often the graph is given new weights or features."""
    facts = graph.structure.remembered
    if what in facts:
        return facts[what]
    with lasting(*graph.structure.forward):
        found = find()
    if not isinstance(found, Tensor) or real(found):
        facts[what] = found
    return found


class Edges(Neighbors):
    """A `Graph` as a pattern: what `attend(..., neighbors=graph)` and `graph & Causal()` turn it into."""

    def __init__(self, graph: Graph):
        self.edges = graph
        self.signature = ("Graph", Identity(graph))

    @property
    def shape_key(self):
        carried = tuple((name, tuple(tensor.shape), tensor.device) for name, tensor, _ in self.carried())
        sizes = (self.edges.targets, self.edges.sources, self.edges.edges)
        return ("Graph", *sizes, self.edges.device, carried, self.repeated)

    def check(self, queries, keys, heads):
        if (self.edges.targets, self.edges.sources) != (queries, keys):
            raise ValueError(
                f"attend(): {self.edges} has {self.edges.targets} listeners and {self.edges.sources} "
                f"speakers, but query has {queries} and key {keys} nodes."
            )

    def carried(self):
        own = {"weight": 1, "bias": 1, "key": 2, "value": 2}
        return [(f"edge {name}", getattr(self.edges, name), own[name]) for name in self.attributes]

    def graphs(self):
        return [self.edges]

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(
            name for name in ("weight", "bias", "key", "value") if getattr(self.edges, name) is not None
        )

    @property
    def _codes(self) -> Tensor:
        """Every pair as one number, sorted."""
        graph = self.edges
        return _remembered(
            graph, "codes", lambda: (graph.target * graph.sources + graph.source).sort().values
        )

    @property
    def repeated(self) -> bool:
        """Whether some pair has several edges: looked up where a dense strategy might run, else assumed."""
        graph = self.edges
        if traced() or graph.targets * graph.sources > 16 * graph.edges:
            return True
        return _remembered(graph, "repeated", lambda: bool((self._codes[1:] == self._codes[:-1]).any()))

    def span(self, queries, keys):
        if self.edges.edges == 0 or traced():
            return (0, 0)
        offset = self.edges.target + (keys - queries) - self.edges.source
        return _remembered(
            self.edges, "span", lambda: (max(0, int(offset.max())), max(0, -int(offset.min())))
        )

    def allows(self, i, j, queries, keys):
        wanted = (i - (keys - queries)) * self.edges.sources + j
        if self.edges.edges == 0:
            return torch.zeros_like(wanted, dtype=torch.bool)
        codes = self._codes.to(wanted.device)
        found = torch.searchsorted(codes, wanted.contiguous()).clamp_max(len(codes) - 1)
        return codes[found] == wanted

    def facts(self, queries, keys):
        return NeighborFacts(
            "a graph" if torch.compiler.is_compiling() else self.__repr__(),  # of whatever size
            self._count(),
            interval=None,
            complete=False,
            graph=True,
            attributes=self.attributes,
            repeated=self.repeated,
        )

    def _count(self) -> float:
        """How many edges; a compiler hears the next power of two, so that a few more do not mean a new trace,
        and a program exported for any number hears nothing.
        """
        edges = self.edges.edges
        if not torch.compiler.is_compiling():
            return float(edges)
        if exporting() and isinstance(edges, torch.SymInt):
            return inf
        return float(bucket(edges))

    def pairs(self, queries, keys, device):
        return self.edges.target + (keys - queries), self.edges.source

    def graph(self, queries, keys, device):
        return self.edges

    def __repr__(self):
        return self.edges.__repr__()


def as_neighbors(thing) -> Neighbors:
    if isinstance(thing, Graph):
        return Edges(thing)
    if isinstance(thing, Neighbors):
        return thing
    hint = " For a boolean mask write Mask(tensor)." if isinstance(thing, Tensor) else ""
    raise TypeError(f"attend(): neighbors must be a Neighbors or a Graph, got {type(thing).__name__}.{hint}")
