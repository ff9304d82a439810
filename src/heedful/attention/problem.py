"""What the planner knows about a call: shapes and declared facts, no tensors.

A `Problem` is plain data. It hashes (plans are cached by it), serialises, and can be built for shapes nobody
has allocated. Strategies read nothing else when they say whether they accept it and what it would cost.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from math import inf
from typing import Any


def bucket(length: int) -> int:
    """The next power of two, by comparisons, which a symbolic length answers with a range, not a value."""
    found = 1
    while found < length:
        found *= 2
    return found if length > 0 else 0


@dataclass(frozen=True)
class SimilarityFacts:
    name: str
    # Which loop evaluates a pair: dot, power, additive, additive_v2, uniform, features, function or argmax.
    kind: str
    log_form: bool = True  # the score is a logarithm, so softmax-style subtraction of the maximum applies
    features: int | None = None  # size of an exact feature map, if there is one
    positive: bool = True
    degree: int = 0
    map: str = ""  # which φ, if our kernels make it in registers: square, elu or exponential


@dataclass(frozen=True)
class NeighborFacts:
    name: str
    pairs: float  # how many (listener, speaker) pairs, exactly or from above
    # i heeds j exactly when low ≤ i−j ≤ high; None: not of that form.
    interval: tuple[float, float] | None = (-inf, inf)
    reach: tuple[float, float] = (-inf, inf)  # no pair lies outside low ≤ i−j ≤ high
    block: float = inf  # no listener hears more than this many consecutive keys
    complete: bool = True
    graph: bool = False  # given as an edge list
    attributes: tuple[str, ...] = ()  # what the edges carry: weight, bias, key, value
    repeated: bool = False  # some pair is joined by several edges
    listed: bool = True  # can be enumerated as an edge list shared by all batch entries
    lasting: bool = True  # what is worked out of it can be kept: it is no mask, which may change


@dataclass(frozen=True)
class PositionFacts:
    name: str
    decay: bool = False  # exp(position) falls geometrically with distance: slope·|i−j|
    learned: bool = False  # gradients must reach its parameters
    per_head: bool = False  # each head has a table of its own


@dataclass(frozen=True)
class Problem:
    batch: int
    heads: int
    key_heads: int
    queries: int
    keys: int
    dim: int
    value_dim: int
    dtype: str
    device: str
    similarity: SimilarityFacts
    neighbors: NeighborFacts
    position: PositionFacts | None = None
    dropout: bool = False
    gradient: bool = False
    exact: bool = True
    transform: str = ""  # "", "compile" or "functorch": who is tracing this call

    @property
    def rows(self) -> int:
        """How many independent (batch, head) problems there are."""
        return self.batch * self.heads

    @property
    def item(self) -> int:
        """Bytes of one stored number."""
        return {"float64": 8, "float32": 4}.get(self.dtype, 2)

    @property
    def tensor_bytes(self) -> int:
        """Bytes of query, key, value and output together: what every strategy must touch."""
        keys = self.batch * self.key_heads * self.keys * (self.dim + self.value_dim)
        return self.item * (keys + self.rows * self.queries * (self.dim + self.value_dim))

    @property
    def band(self) -> tuple[int, int]:
        """The neighbours' reach cut to the offsets that occur, i−j ∈ [−right, left], as (left, right)."""
        low, high = self.neighbors.reach
        return int(min(high, self.keys - 1)), int(min(-low, self.queries - 1))

    @property
    def width(self) -> int:
        """How many consecutive keys one listener's neighbours can span."""
        left, right = self.band
        return int(max(0, min(left + right + 1, self.keys, self.neighbors.block)))

    def __str__(self) -> str:
        shape = f"{self.queries:,} × {self.keys:,}" if self.queries != self.keys else f"{self.queries:,}"
        heads = f"{self.heads}" if self.heads == self.key_heads else f"{self.heads}/{self.key_heads}"
        text = f"{self.similarity.name} · {self.neighbors.name}"
        if self.position:
            text += f" · {self.position.name}"
        text += f"\n{self.batch} × {heads} heads × {shape} long × {self.dim}→{self.value_dim} wide"
        text += f", {self.dtype}, {self.device}"
        extras = [word for word, on in (("training", self.gradient), ("dropout", self.dropout)) if on]
        extras += [] if self.exact else ["approximations admitted"]
        return text + "".join(f", {word}" for word in extras)

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict) -> Problem:
        data = dict(data)
        data["similarity"] = SimilarityFacts(**data["similarity"])
        neighbors: dict[str, Any] = {
            name: tuple(entry) if isinstance(entry, list) else entry
            for name, entry in data["neighbors"].items()
        }
        data["neighbors"] = NeighborFacts(**neighbors)
        data["position"] = PositionFacts(**data["position"]) if data.get("position") else None
        return cls(**data)

    def replace(self, **changes) -> Problem:
        return replace(self, **changes)

    # torch.compile can run the planner at trace time only on flat constants: `flat` takes a problem apart,
    # `from_flat` puts it together.

    def flat(self) -> tuple:
        position = self.position
        return (
            *[getattr(self.similarity, name) for name in _SIMILARITY],
            *_flat_neighbors(self.neighbors),
            position.name if position else "",
            bool(position and position.decay),
            bool(position and position.learned),
            bool(position and position.per_head),
            *[getattr(self, name) for name in _PLAIN],
        )

    @classmethod
    def from_flat(cls, values: tuple) -> Problem:
        values, similarity = _take(values, _SIMILARITY)
        values, neighbors = _take(values, _NEIGHBORS)
        low, high, exact_interval = (
            neighbors.pop("interval_low"),
            neighbors.pop("interval_high"),
            neighbors.pop("has_interval"),
        )
        neighbors["interval"] = (low, high) if exact_interval else None
        neighbors["reach"] = (neighbors.pop("reach_low"), neighbors.pop("reach_high"))
        neighbors["attributes"] = tuple(part for part in neighbors["attributes"].split(",") if part)
        values, position = _take(values, _POSITION)
        _, plain = _take(values, _PLAIN)
        return cls(
            similarity=SimilarityFacts(**similarity),
            neighbors=NeighborFacts(**neighbors),
            position=PositionFacts(**position) if position["name"] else None,
            **plain,
        )


_SIMILARITY = tuple(field.name for field in fields(SimilarityFacts))
_POSITION = tuple(field.name for field in fields(PositionFacts))
_PLAIN = tuple(
    field.name for field in fields(Problem) if field.name not in ("similarity", "neighbors", "position")
)
_NEIGHBORS = ("name", "pairs", "block", "complete", "graph", "repeated", "listed", "lasting") + (
    "attributes",
    "interval_low",
    "interval_high",
    "has_interval",
    "reach_low",
    "reach_high",
)


def _flat_neighbors(facts: NeighborFacts) -> tuple:
    interval = facts.interval
    return (
        facts.name,
        facts.pairs,
        facts.block,
        facts.complete,
        facts.graph,
        facts.repeated,
        facts.listed,
        facts.lasting,
        ",".join(facts.attributes),
        interval[0] if interval is not None else 0.0,
        interval[1] if interval is not None else 0.0,
        interval is not None,
        facts.reach[0],
        facts.reach[1],
    )


def _take(values: tuple, names: tuple) -> tuple[tuple, dict]:
    return values[len(names) :], dict(zip(names, values, strict=False))
