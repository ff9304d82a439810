"""Who listens to whom: patterns over positions, composable with & and |, and graphs.

Positions are those of the keys. When there are fewer queries than keys (or more) they align at the end: query
i stands at position i + keys − queries. That is what decoding with a cache needs.

A pattern says whether i heeds j (`allows`), can list its pairs (`pairs`), and declares facts: the interval of
i−j that it is made of, if it is that simple, how far it reaches, how many pairs there are.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from operator import index

import torch
from torch import Tensor

from ..graphs import Graph
from .problem import NeighborFacts, bucket
from .transforms import exporting, fixed, lasting, sizes, traced


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
        """The same pattern as an edge list; the last few asked for are kept."""
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
        return _combine(All, self, other)

    def __or__(self, other) -> Neighbors:
        return _combine(Any, self, other)

    def __rand__(self, other) -> Neighbors:
        return _combine(All, other, self)

    def __ror__(self, other) -> Neighbors:
        return _combine(Any, other, self)

    def __eq__(self, other) -> bool:  # a Graph is a Neighbors, but no pattern
        return isinstance(other, Neighbors) and self.signature == getattr(other, "signature", None)

    def __hash__(self) -> int:
        return hash(self.signature)


_GRAPHS: OrderedDict[tuple, Graph] = OrderedDict()
_GRAPHS_KEPT = 16


class _Identity:
    """Equal only where the wrapped object is the same one, and keeps it alive: no other can take its id."""

    def __init__(self, thing):
        self.thing = thing

    def __eq__(self, other):
        return isinstance(other, _Identity) and self.thing is other.thing

    def __hash__(self):
        return id(self.thing)


def as_neighbors(thing) -> Neighbors:
    if isinstance(thing, Graph):
        return Edges(thing)
    if isinstance(thing, Neighbors):
        return thing
    hint = " For a boolean mask write Mask(tensor)." if isinstance(thing, Tensor) else ""
    raise TypeError(f"attend(): neighbors must be a Neighbors or a Graph, got {type(thing).__name__}.{hint}")


def _combine(kind, left, right) -> Neighbors:
    try:
        return kind(as_neighbors(left), as_neighbors(right))
    except TypeError:
        if isinstance(left, (Neighbors, Graph)) and isinstance(right, (Neighbors, Graph)):
            raise
        return NotImplemented


class _Interval(Neighbors):
    """i heeds j when low ≤ i−j ≤ high."""

    low: float = -inf
    high: float = inf

    def allows(self, i, j, queries, keys):
        offset = i - j
        if self.low == -inf and self.high == inf:
            return torch.ones_like(offset, dtype=torch.bool)
        if self.high == inf:
            return offset >= self.low
        if self.low == -inf:
            return offset <= self.high
        return (offset >= self.low) & (offset <= self.high)

    def facts(self, queries, keys):
        return interval_facts(repr(self), self.low, self.high, queries, keys)

    def pairs(self, queries, keys, device):
        i = torch.arange(queries, device=device) + (keys - queries)
        start = torch.zeros_like(i) if self.high == inf else (i - int(self.high)).clamp(0, keys)
        stop = torch.full_like(i, keys) if self.low == -inf else (i - int(self.low) + 1).clamp(0, keys)
        count = (stop - start).clamp_min(0)
        listener = torch.repeat_interleave(i, count)
        before = torch.cumsum(count, 0) - count
        speaker = torch.arange(listener.numel(), device=device) - torch.repeat_interleave(
            before - start, count
        )
        return listener, speaker


def interval_facts(name: str, low: float, high: float, queries: int, keys: int) -> NeighborFacts:
    complete = low <= -(queries - 1) and high >= keys - 1
    if complete:
        pairs = float(queries) * keys
    else:  # Σ_i |[max(0, i−high), min(keys, i−low+1))| over positions i
        pairs = _staircase(queries, keys, -low + 1) - _staircase(queries, keys, -high)
    reach = (-inf, inf) if complete else (low, high)
    return NeighborFacts(name, max(0.0, pairs), interval=reach, reach=reach, complete=complete)


def _staircase(queries: int, keys: int, shift: float) -> float:
    """Σ_i clamp(i + shift, 0, keys) over the listeners' positions i."""
    if shift == inf:
        return float(queries) * keys
    if shift == -inf:
        return 0.0
    first, last = keys - queries + shift, keys - 1 + shift
    total = lambda top: top * (top + 1) / 2 if top > 0 else 0.0  # noqa: E731
    rising = total(min(last, keys)) - total(min(first - 1, keys))
    flat = max(0.0, last - max(keys, first - 1)) * keys
    return rising + flat


class Everyone(_Interval):
    """Every speaker is heard.

    >>> from heedful import Everyone
    >>> Everyone().facts(3, 4).pairs
    12.0
    """

    signature = ("Everyone",)

    def __repr__(self):
        return "Everyone()"


class Causal(_Interval):
    """j ≤ i: listeners hear themselves and what came before.

    >>> from heedful import Causal
    >>> Causal().facts(3, 3).pairs
    6.0
    """

    low = 0
    signature = ("Causal",)

    def __repr__(self):
        return "Causal()"


class Window(_Interval):
    """|i − j| ≤ width: a listener hears `width` positions to either side, and itself.

    >>> from heedful import Causal, Window
    >>> (Causal() & Window(2)).facts(5, 5).pairs
    12.0
    """

    def __init__(self, width: int):
        if isinstance(width, bool) or not isinstance(width, int) or width < 1:
            raise ValueError(f"Window(width={width!r}): width must be a whole number, 1 or more.")
        self.low, self.high = -width, width
        self.signature = ("Window", width)

    def __repr__(self):
        return f"Window({fixed(self.high)})"


def _whole_numbers(what: str, given) -> list[int]:
    try:
        return [index(number) for number in (given.tolist() if isinstance(given, Tensor) else given)]
    except TypeError:
        raise TypeError(f"{what}: takes a list of whole numbers, got {given!r}.") from None


class Segments(Neighbors):
    """Block-diagonal: positions are cut into runs of the given lengths, and nobody hears another run.

    For packed sequences and batches of graphs. The lengths must add up to the number of keys.

    >>> from heedful import Segments
    >>> Segments([2, 3]).facts(5, 5).pairs
    13.0
    """

    def __init__(self, lengths: Sequence[int] | Tensor):
        lengths = _whole_numbers("Segments(lengths)", lengths)
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
            repr(self),
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


class Global(Neighbors):
    """Chosen positions hear everyone and are heard by everyone; nobody else is.

    Combine it: Window(64) | Global([0]).

    >>> from heedful import Global, Window
    >>> (Window(1) | Global([0])).facts(4, 4).pairs >= 14
    True
    """

    def __init__(self, indices: Sequence[int] | Tensor):
        indices = sorted(set(_whole_numbers("Global(indices)", indices)))
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
        return NeighborFacts(repr(self), pairs, interval=None, complete=pairs == queries * keys)

    def pairs(self, queries, keys, device):
        positions = torch.arange(keys, device=device)
        standing = torch.arange(keys - queries, keys, device=device)  # below 0 where queries outnumber keys
        chosen = torch.tensor(self.indices, device=device)
        listeners, others = standing[self._chosen(standing)], standing[~self._chosen(standing)]
        i = torch.cat([listeners.repeat_interleave(keys), others.repeat_interleave(len(chosen))])
        j = torch.cat([positions.repeat(len(listeners)), chosen.repeat(len(others))])
        return i, j

    def __repr__(self):
        return (
            f"Global({list(self.indices)})"
            if len(self.indices) <= 4
            else f"Global({len(self.indices)} positions)"
        )


class Mask(Neighbors):
    """Any boolean tensor that broadcasts to (..., heads, queries, keys); True means i heeds j.

    >>> import torch, heedful
    >>> x = torch.eye(3)
    >>> out = heedful.attend(x, x, x, neighbors=heedful.Mask(torch.eye(3, dtype=torch.bool)))
    >>> torch.equal(out, x)     # everyone hears only itself
    True
    """

    def __init__(self, allowed: Tensor):
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool or allowed.dim() < 2:
            got = (
                f"{allowed.dtype} of shape {tuple(allowed.shape)}"
                if isinstance(allowed, Tensor)
                else type(allowed).__name__
            )
            raise TypeError(
                f"Mask(allowed): takes a boolean tensor of shape (..., queries, keys), got {got}."
            )
        self.allowed = allowed
        self.signature = ("Mask", _Identity(allowed))

    @property
    def shape_key(self):
        return ("Mask", tuple(self.allowed.shape), self.allowed.device)

    def check(self, queries, keys, heads):
        for name, size, wanted in zip(
            ("queries", "keys"), self.allowed.shape[-2:], (queries, keys), strict=True
        ):
            if size not in (1, wanted):
                raise ValueError(
                    f"Mask of shape {tuple(self.allowed.shape)}: {size} {name}, but the call has {wanted}."
                )

    def carried(self):
        return [("Mask", self.allowed, 2)]

    def allows(self, i, j, queries, keys):
        allowed = self.allowed.expand(*self.allowed.shape[:-2], queries, keys)
        row = i - (keys - queries)
        # FlexAttention traces the first only.
        return allowed[row, j] if allowed.dim() == 2 else allowed[..., row, j]

    def mask(self, tile):
        allowed = self.allowed.expand(*self.allowed.shape[:-2], tile.queries, tile.keys)
        return allowed[..., slice(*tile.rows), slice(*tile.columns)]

    def facts(self, queries, keys):
        shared = self.allowed.dim() == 2
        return NeighborFacts(repr(self), float(queries) * keys, interval=None, complete=False, listed=shared)

    def pairs(self, queries, keys, device):
        i, j = self.allowed.expand(queries, keys).nonzero(as_tuple=True)
        return i + (keys - queries), j

    def __repr__(self):
        return f"Mask({sizes(self.allowed)})"


_OF_STRUCTURE: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _remembered(graph: Graph, what: str, find):
    """A fact about the edges alone, found once however often the graph is given new weights or features."""
    facts = _OF_STRUCTURE.setdefault(graph.structure, {})
    if what not in facts:
        facts[what] = find()
    return facts[what]


class Edges(Neighbors):
    """A `Graph` as a pattern: what `attend(..., neighbors=graph)` and `graph & Causal()` turn it into."""

    def __init__(self, graph: Graph):
        self.edges = graph
        self.signature = ("Graph", _Identity(graph))

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
            "a graph" if torch.compiler.is_compiling() else repr(self),  # of whatever size
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
        return repr(self.edges)


class _Pair(Neighbors):
    symbol: str

    def __init__(self, left: Neighbors, right: Neighbors):
        self.left, self.right = left, right
        self.signature = (type(self).__name__, left.signature, right.signature)
        for side in (left, right):
            if isinstance(side, Edges) and side.attributes and not self._keeps_edges:
                raise TypeError(
                    f"{left} | {right}: the pairs that are not edges would have no {side.attributes[0]}. "
                    f"Drop it with graph.with_edges({side.attributes[0]}=None), or use &."
                )

    _keeps_edges = False

    @property
    def shape_key(self):
        return (type(self).__name__, self.left.shape_key, self.right.shape_key)

    def check(self, queries, keys, heads):
        self.left.check(queries, keys, heads)
        self.right.check(queries, keys, heads)

    def carried(self):
        return self.left.carried() + self.right.carried()

    def graphs(self):
        return self.left.graphs() + self.right.graphs()

    def facts(self, queries, keys):
        left, right = self.left.facts(queries, keys), self.right.facts(queries, keys)
        name = repr(self)
        interval = self._interval(left.interval, right.interval)
        if interval is not None:
            return interval_facts(name, *interval, queries, keys)
        return self._facts(name, left, right, float(queries) * keys)

    def __repr__(self):
        # & binds tighter than |, so only an | inside an & needs parentheses.
        sides = (
            f"({x})" if isinstance(x, Any) and isinstance(self, All) else str(x)
            for x in (self.left, self.right)
        )
        return f" {self.symbol} ".join(sides)


class All(_Pair):
    """Both patterns allow it."""

    symbol = "&"
    _keeps_edges = True

    def allows(self, i, j, queries, keys):
        return self.left.allows(i, j, queries, keys) & self.right.allows(i, j, queries, keys)

    def mask(self, tile):
        masks = [mask for mask in (self.left.mask(tile), self.right.mask(tile)) if mask is not None]
        return masks[0] if len(masks) == 1 else masks[0] & masks[1] if masks else None

    def _interval(self, left, right):
        if left is None or right is None:
            return None
        low, high = max(left[0], right[0]), min(left[1], right[1])
        return (low, high) if low <= high else (0, -1)

    def _facts(self, name, left, right, everything):
        low, high = max(left.reach[0], right.reach[0]), min(left.reach[1], right.reach[1])
        return NeighborFacts(
            name,
            min(left.pairs, right.pairs),
            interval=None,
            reach=(low, high),
            block=min(left.block, right.block),
            complete=left.complete and right.complete,
            graph=left.graph or right.graph,
            attributes=left.attributes or right.attributes,
            repeated=left.repeated or right.repeated,
            listed=left.listed and right.listed,
        )

    def span(self, queries, keys):
        left, right = self.left.span(queries, keys), self.right.span(queries, keys)
        return min(left[0], right[0]), min(left[1], right[1])

    def key_range(self, rows, queries, keys):
        left, right = (side.key_range(rows, queries, keys) for side in (self.left, self.right))
        start, stop = max(left[0], right[0]), min(left[1], right[1])
        return (start, stop) if start < stop else (0, 0)

    def pairs(self, queries, keys, device):
        sides = sorted((self.left, self.right), key=lambda side: side.facts(queries, keys).pairs)
        i, j = sides[0].pairs(queries, keys, device)
        kept = sides[1].allows(i, j, queries, keys)
        return i[kept], j[kept]

    def graph(self, queries, keys, device):
        # Edge attributes may belong to a running autograd graph, which must not outlive the call.
        if self.facts(queries, keys).attributes:
            return self.list_edges(queries, keys, device)
        return super().graph(queries, keys, device)

    def list_edges(self, queries, keys, device):
        graphs = [side for side in (self.left, self.right) if side.facts(queries, keys).graph]
        if not graphs:
            return super().list_edges(queries, keys, device)
        if len(graphs) == 2 and all(side.facts(queries, keys).attributes for side in graphs):
            raise ValueError(
                f"{self}: both graphs carry edge attributes, and it is not clear whose should hold."
            )
        # Filter edges rather than list pairs, so that attributes and repeated edges survive.
        base = max(graphs, key=lambda side: bool(side.facts(queries, keys).attributes))
        other = self.right if base is self.left else self.left
        graph = base.graph(queries, keys, device)
        kept = other.allows(graph.target + (keys - queries), graph.source, queries, keys)
        if kept.dim() == 1:
            return graph.filter(kept)
        # A mask of its own for each head or batch entry silences the edges there that it forbids.
        silence = torch.zeros(kept.shape, device=kept.device).masked_fill(~kept, -inf)
        return graph.with_edges(bias=silence if graph.bias is None else graph.bias + silence)


class Any(_Pair):
    """Either pattern allows it."""

    symbol = "|"

    def allows(self, i, j, queries, keys):
        return self.left.allows(i, j, queries, keys) | self.right.allows(i, j, queries, keys)

    def mask(self, tile):
        masks = (self.left.mask(tile), self.right.mask(tile))
        return None if masks[0] is None or masks[1] is None else masks[0] | masks[1]

    def _interval(self, left, right):
        if left is None or right is None:
            return None
        (low, high), (second_low, second_high) = sorted([left, right])
        if second_low > high + 1:
            return None
        return (low, max(high, second_high))

    def _facts(self, name, left, right, everything):
        low, high = min(left.reach[0], right.reach[0]), max(left.reach[1], right.reach[1])
        return NeighborFacts(
            name,
            min(left.pairs + right.pairs, everything),
            interval=None,
            reach=(low, high),
            complete=left.complete or right.complete,
            listed=left.listed and right.listed,
        )

    def span(self, queries, keys):
        left, right = self.left.span(queries, keys), self.right.span(queries, keys)
        return max(left[0], right[0]), max(left[1], right[1])

    def key_range(self, rows, queries, keys):
        left, right = (side.key_range(rows, queries, keys) for side in (self.left, self.right))
        ranges = [side for side in (left, right) if side[0] < side[1]] or [(0, 0)]
        return (min(side[0] for side in ranges), max(side[1] for side in ranges))

    def pairs(self, queries, keys, device):
        codes = [
            i * keys + j for i, j in (side.pairs(queries, keys, device) for side in (self.left, self.right))
        ]
        code = torch.cat(codes).unique()
        return torch.div(code, keys, rounding_mode="floor"), code % keys


Neighbors.register(Graph)
