"""What every pattern is: whether a listener heeds a speaker, all pairs, and facts for the planner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from operator import index

import torch
from torch import Tensor

from ...graphs import Graph
from ..problem import NeighborFacts
from ..transforms import lasting


@dataclass(frozen=True)
class Tile:
    """A block of the (queries × keys) plane, and how it lies in it."""

    queries: int
    keys: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    device: torch.device

    @classmethod
    def whole(cls, queries: int, keys: int, device) -> Tile:
        return cls(queries, keys, (0, queries), (0, keys), device)

    @property
    def i(self) -> Tensor:
        """Positions of the listeners, as a column."""
        return torch.arange(self.rows[0], self.rows[1], device=self.device)[:, None] + (
            self.keys - self.queries
        )

    @property
    def j(self) -> Tensor:
        """Positions of the speakers, as a row."""
        return torch.arange(self.columns[0], self.columns[1], device=self.device)[None, :]


class Neighbors(ABC):
    """Base of all patterns.

    `signature` identifies a pattern by value (patterns made of tensors: by identity). `shape_key` is the part
    of it that can change a plan; it holds no tensors, so remembering plans keeps nothing alive.
    """

    signature: tuple

    @property
    def shape_key(self) -> tuple:
        return self.signature

    @abstractmethod
    def allows(self, i: Tensor, j: Tensor, queries: int, keys: int) -> Tensor:
        """Whether the listener at position i heeds the speaker at j, for broadcasting index tensors."""

    @abstractmethod
    def facts(self, queries: int, keys: int) -> NeighborFacts: ...

    @abstractmethod
    def pairs(self, queries: int, keys: int, device) -> tuple[Tensor, Tensor]:
        """All pairs as (listener position, speaker position)."""

    def check(self, queries: int, keys: int, heads: int) -> None:  # noqa: B027 (most patterns fit any)
        """Raise if the pattern does not fit these lengths."""

    def carried(self) -> list[tuple[str, Tensor, int]]:
        """The tensors it is made of: name, tensor, how many last dimensions are its own (pairs, edges)."""
        return []

    def graphs(self) -> list[Graph]:
        """The graphs it is made of."""
        return []

    def key_range(self, rows: tuple[int, int], queries: int, keys: int) -> tuple[int, int]:
        """The smallest run of keys that holds all neighbours of these rows."""
        low, high = self.facts(queries, keys).reach
        first, last = rows[0] + keys - queries, rows[1] - 1 + keys - queries
        start, stop = max(0, first - high), min(keys, last - low + 1)
        return (int(start), int(stop)) if start < stop else (0, 0)

    def span(self, queries: int, keys: int) -> tuple[int, int]:
        """How far back and ahead a listener hears, at most."""
        facts = self.facts(queries, keys)
        low, high = facts.reach
        return int(max(0, min(high, keys - 1))), int(max(0, min(-low, queries - 1)))

    def mask(self, tile: Tile) -> Tensor | None:
        """The tile's allowed pairs, (rows, columns) or with batch dimensions before; None when all are."""
        if self.facts(tile.queries, tile.keys).complete:
            return None
        return self.allows(tile.i, tile.j, tile.queries, tile.keys)

    def graph(self, queries: int, keys: int, device) -> Graph:
        """The same pattern as an edge list; the last few asked for are kept.

        Not where the pattern carries tensors: they may change, or belong to a running autograd graph.
        """
        if self.carried() or torch.compiler.is_compiling():
            return self.list_edges(queries, keys, device)
        key = (self.signature, queries, keys, str(device))
        if key not in _GRAPHS:
            with lasting():
                _GRAPHS[key] = self.list_edges(queries, keys, device)
            while len(_GRAPHS) > _GRAPHS_KEPT:
                _GRAPHS.popitem(last=False)
        _GRAPHS.move_to_end(key)
        return _GRAPHS[key]

    def list_edges(self, queries: int, keys: int, device) -> Graph:
        i, j = self.pairs(queries, keys, device)
        return Graph.from_edges(j, i - (keys - queries), sources=keys, targets=queries)

    def __and__(self, other) -> Neighbors:
        return _combine("All", self, other)

    def __or__(self, other) -> Neighbors:
        return _combine("Any", self, other)

    def __rand__(self, other) -> Neighbors:
        return _combine("All", other, self)

    def __ror__(self, other) -> Neighbors:
        return _combine("Any", other, self)

    def __eq__(self, other) -> bool:  # a Graph is a Neighbors, but no pattern
        return isinstance(other, Neighbors) and self.signature == getattr(other, "signature", None)

    def __hash__(self) -> int:
        return hash(self.signature)


_GRAPHS: OrderedDict[tuple, Graph] = OrderedDict()
_GRAPHS_KEPT = 16


class Identity:
    """Equal only where the wrapped object is the same one, and keeps it alive: no other can take its id."""

    def __init__(self, thing):
        self.thing = thing

    def __eq__(self, other):
        return isinstance(other, Identity) and self.thing is other.thing

    def __hash__(self):
        return id(self.thing)


def _combine(kind: str, left, right) -> Neighbors:
    from . import combined, edges  # which are patterns themselves

    try:
        return getattr(combined, kind)(edges.as_neighbors(left), edges.as_neighbors(right))
    except TypeError:
        if isinstance(left, (Neighbors, Graph)) and isinstance(right, (Neighbors, Graph)):
            raise
        return NotImplemented


def whole_numbers(what: str, given) -> list[int]:
    try:
        return [index(number) for number in (given.tolist() if isinstance(given, Tensor) else given)]
    except TypeError:
        raise TypeError(f"{what}: takes a list of whole numbers, got {given!r}.") from None


Neighbors.register(Graph)
