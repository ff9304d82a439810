"""Similarities, neighbours and positions to try, each in every form it can take, and how to compare results.

A case keeps its parameters apart from the objects made of them, so that the same numbers can be evaluated in
another dtype and a gradient asked for every one of them. A test checks that nothing public is missing here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

import heedful
from heedful.attention.strategies import STRATEGIES
from heedful.graphs import Graph

EXACT = [name for name, strategy in STRATEGIES.items() if strategy.exact]


@dataclass
class Shape:
    """The sizes of a call, and where its random numbers come from."""

    lead: tuple[int, ...] = ()
    heads: int = 2
    key_heads: int = 1
    queries: int = 5
    keys: int = 6
    dim: int = 4
    value_dim: int = 3
    seed: int = 0
    generator: torch.Generator = field(init=False)

    def __post_init__(self):
        self.generator = torch.Generator().manual_seed(self.seed)

    def normal(self, *size: int) -> Tensor:
        """Gaussian numbers on a grid of 1/64: sums of a few are exact in float32 too, so leaky ReLU's kink,
        where the gradient jumps, lies on the same side in every precision. Some fall right on it."""
        return (torch.randn(size, generator=self.generator, dtype=torch.float64) * 64).round() / 64

    def integers(self, low: int, high: int, *size: int) -> Tensor:
        return torch.randint(low, high, size, generator=self.generator)

    def flags(self, *size: int, share: float = 0.5) -> Tensor:
        return torch.rand(*size, generator=self.generator) < share


@dataclass
class Piece:
    """Parameters, and what is made of them."""

    make: Callable[..., object]
    tensors: dict[str, Tensor] = field(default_factory=dict)


def fixed(thing) -> Piece:
    return Piece(lambda: thing)


def exponential(x):
    return torch.exp(x)


def minus_square_distance(q, k):
    return -(q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)


SIMILARITIES: dict[str, Callable[[Shape], Piece]] = {
    "softmax": lambda s: fixed(heedful.Softmax()),
    "softmax, number": lambda s: fixed(heedful.Softmax(scale=0.7)),
    "softmax, scalar": lambda s: Piece(heedful.Softmax, {"scale": torch.tensor(0.4, dtype=torch.float64)}),
    "softmax, per head": lambda s: Piece(heedful.Softmax, {"scale": s.normal(s.heads)}),
    "argmax": lambda s: fixed(heedful.Argmax()),
    "polynomial 1": lambda s: fixed(heedful.Polynomial(degree=1)),
    "polynomial 2": lambda s: fixed(heedful.Polynomial()),
    "polynomial 2, no constant": lambda s: fixed(heedful.Polynomial(degree=2, constant=0.0)),
    "polynomial 3": lambda s: fixed(heedful.Polynomial(degree=3, constant=0.5)),
    "polynomial 4, negative": lambda s: fixed(heedful.Polynomial(degree=4, constant=-0.5)),
    "elu": lambda s: fixed(heedful.EluKernel()),
    "features": lambda s: fixed(heedful.FeatureMap(exponential, positive=True)),
    "random features": lambda s: fixed(heedful.RandomFeatures(7, seed=s.seed % 5)),
    "additive": lambda s: fixed(heedful.Additive()),
    "additive, relu": lambda s: fixed(heedful.Additive(slope=0.0)),
    "additive v2": lambda s: Piece(heedful.Additive, {"weight": s.normal(s.dim)}),
    "additive v2, per head": lambda s: Piece(heedful.Additive, {"weight": s.normal(s.heads, s.dim)}),
    "uniform": lambda s: fixed(heedful.Uniform()),
    "function": lambda s: fixed(heedful.ScoreFunction(minus_square_distance)),
}


def scalar(similarity: str) -> bool:
    return similarity in ("additive", "additive, relu")


def segments(s: Shape):
    cuts = sorted(s.integers(0, s.keys + 1, 3).tolist())
    return heedful.Segments([b - a for a, b in zip([0, *cuts], [*cuts, s.keys], strict=True)])


def some_positions(s: Shape):
    return heedful.Global(s.integers(0, s.keys, 2))


def edges(s: Shape, count: int | None = None) -> Graph:
    """Random edges: some pairs twice, some nodes without any."""
    count = 2 * s.queries if count is None else count
    ends = s.integers(0, s.keys, count), s.integers(0, s.queries, count)
    return Graph.from_edges(*ends, sources=s.keys, targets=s.queries)


def distinct_edges(s: Shape) -> Graph:
    return Graph.from_dense(s.flags(s.queries, s.keys, share=0.4))


def carrying(
    s: Shape, *names: str, lead: tuple[int, ...] = (), filtered: Callable = lambda graph: graph
) -> Piece:
    """A graph whose edges carry these attributes, each with these leading dimensions."""
    graph = edges(s)
    tails = {"weight": (), "bias": (), "key": (s.dim,), "value": (s.value_dim,)}
    tensors = {name: s.normal(*lead, graph.edges, *tails[name]) for name in names}
    if "weight" in tensors:  # positive, for the normaliser must not vanish
        tensors["weight"] = tensors["weight"].abs() + 0.25
    if "key" in tensors:
        tensors["key"] = tensors["key"] / 64  # small: `well_conditioned` does not see it
    make = lambda **given: filtered(graph.with_edges(**{name[5:]: x for name, x in given.items()}))  # noqa: E731
    return Piece(make, {f"edge_{name}": x for name, x in tensors.items()})


NEIGHBORS: dict[str, Callable[[Shape], Piece]] = {
    "everyone": lambda s: fixed(heedful.Everyone()),
    "causal": lambda s: fixed(heedful.Causal()),
    "window": lambda s: fixed(heedful.Window(2)),
    "causal & window": lambda s: fixed(heedful.Causal() & heedful.Window(2)),
    "causal | window": lambda s: fixed(heedful.Causal() | heedful.Window(1)),
    "global": lambda s: fixed(some_positions(s)),
    "window | global": lambda s: fixed(heedful.Window(1) | some_positions(s)),
    "causal & (window | global)": lambda s: fixed(heedful.Causal() & (heedful.Window(1) | some_positions(s))),
    "segments": lambda s: fixed(segments(s)),
    "segments & causal": lambda s: fixed(segments(s) & heedful.Causal()),
    "mask": lambda s: fixed(heedful.Mask(s.flags(s.queries, s.keys))),
    "mask of columns": lambda s: fixed(heedful.Mask(s.flags(1, s.keys))),
    "mask per head": lambda s: fixed(heedful.Mask(s.flags(s.heads, s.queries, s.keys))),
    "mask per entry": lambda s: fixed(heedful.Mask(s.flags(*s.lead, 1, s.queries, s.keys))),
    "mask & window": lambda s: fixed(heedful.Mask(s.flags(s.heads, s.queries, s.keys)) & heedful.Window(2)),
    "graph": lambda s: fixed(edges(s)),
    "graph without edges": lambda s: fixed(edges(s, 0)),
    "graph of distinct edges": lambda s: fixed(distinct_edges(s)),
    "graph & causal": lambda s: fixed(edges(s) & heedful.Causal()),
    "graph | window": lambda s: fixed(edges(s) | heedful.Window(1)),
    "graph & graph": lambda s: fixed(edges(s, 4 * s.queries) & heedful.Everyone() & distinct_edges(s)),
    "graph, weight": lambda s: carrying(s, "weight"),
    "graph, bias": lambda s: carrying(s, "bias"),
    "graph, key": lambda s: carrying(s, "key"),
    "graph, value": lambda s: carrying(s, "value"),
    "graph, all": lambda s: carrying(s, "weight", "bias", "key", "value"),
    "graph, all per head": lambda s: carrying(s, "weight", "bias", "key", "value", lead=(s.heads,)),
    "graph, all per entry": lambda s: carrying(s, "weight", "bias", "key", "value", lead=(*s.lead, s.heads)),
    "graph, all & window": lambda s: carrying(
        s, "weight", "bias", "key", "value", filtered=lambda graph: heedful.Window(2) & graph
    ),
}


def needs_past(neighbors: str) -> bool:
    """Whether queries may not outnumber keys: the first would stand in no segment."""
    return "segments" in neighbors


def silenced(s: Shape, table: Tensor) -> Tensor:
    return table.masked_fill(s.flags(*table.shape, share=0.2), -torch.inf)


def longest(s: Shape) -> int:
    return max(s.queries, s.keys)


POSITIONS: dict[str, Callable[[Shape], Piece]] = {
    "none": lambda s: fixed(None),
    "relative": lambda s: Piece(heedful.Relative, {"table": s.normal(2 * longest(s) + 1)}),
    "relative, silent": lambda s: Piece(
        heedful.Relative, {"table": silenced(s, s.normal(s.heads, 2 * longest(s) + 1))}
    ),
    "relative, clamped": lambda s: Piece(
        partial(heedful.Relative, clamp=True), {"table": s.normal(s.heads, 5)}
    ),
    "alibi": lambda s: fixed(heedful.Alibi()),
    "alibi, number": lambda s: fixed(heedful.Alibi(0.25)),
    "alibi, scalar": lambda s: Piece(heedful.Alibi, {"slopes": s.normal().abs()}),
    "alibi, per head": lambda s: Piece(heedful.Alibi, {"slopes": s.normal(s.heads).abs()}),
    "t5": lambda s: Piece(partial(heedful.T5Buckets, max_distance=16), {"table": s.normal(8)}),
    "t5, past": lambda s: Piece(
        partial(heedful.T5Buckets, bidirectional=False, max_distance=12), {"table": s.normal(s.heads, 5)}
    ),
    "rotary": lambda s: fixed(heedful.Rotary()),
    "rotary, halves": lambda s: fixed(heedful.Rotary(100.0, interleaved=False, dims=2)),
}


def rotary(position: str) -> bool:
    return position.startswith("rotary")


def fits(similarity: str, position: str) -> bool:
    """Scalars have no coordinates to turn; a polynomial of turned vectors vanishes without its constant."""
    return not rotary(position) or not (scalar(similarity) or "no constant" in similarity)


@dataclass
class Case:
    """Every parameter as a float64 tensor, and the call they make."""

    tensors: dict[str, Tensor]
    pieces: dict[str, Piece]

    def build(self, tensors: dict[str, Tensor]):
        """The arguments of attend, made of these tensors."""
        call = {
            name: piece.make(**{own: tensors[f"{name}.{own}"] for own in piece.tensors})
            for name, piece in self.pieces.items()
        }
        return (tensors["query"], tensors["key"], tensors["value"]), call

    def leaves(self, dtype=torch.float64) -> dict[str, Tensor]:
        # Through the lower precision and back: the reference must see the numbers the strategy sees.
        return {name: x.to(dtype, copy=True).requires_grad_() for name, x in self.tensors.items()}

    def rounded(self, dtype) -> Case:
        return Case({name: x.to(dtype).double() for name, x in self.tensors.items()}, self.pieces)

    def able(self, gradient: bool = True, **options) -> list[str]:
        """The exact strategies that take this call."""
        with torch.set_grad_enabled(gradient):
            args, call = self.build(self.leaves(options.pop("dtype", torch.float64)))
            plan = heedful.explain(*args, **call, **options)
        return [candidate.name for candidate in plan.candidates if candidate.reason is None]

    def output(self, strategy: str, dtype=torch.float64, **options) -> Tensor:
        with torch.no_grad():
            args, call = self.build(self.leaves(dtype))
            return heedful.attend(*args, **call, strategy=strategy, **options)

    def evaluate(self, strategy: str, dtype=torch.float64, **options) -> dict[str, Tensor]:
        """The output, and the gradient of ⟨output, cotangent⟩ by every parameter."""
        leaves = self.leaves(dtype)
        args, call = self.build(leaves)
        out = heedful.attend(*args, **call, strategy=strategy, **options)
        found = torch.autograd.grad(out, list(leaves.values()), self.cotangent(out), allow_unused=True)
        if not out.requires_grad:
            raise AssertionError("the output lost its gradient")
        results = {"output": out.detach()}
        for (name, leaf), gradient in zip(leaves.items(), found, strict=True):
            results[name] = torch.zeros_like(leaf) if gradient is None else gradient
        return results

    def cotangent(self, out: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(out.numel())
        return (torch.randn(out.shape, generator=generator, dtype=torch.float64)).float().to(out.dtype)


def case(
    shape: Shape, similarity: str, neighbors: str | Piece, position: str, *, single: bool = False
) -> Case:
    """A call with these ingredients. `single` leaves the head dimension out."""
    if scalar(similarity):
        shape.dim = 1
    pieces = {
        "similarity": SIMILARITIES[similarity](shape),
        "neighbors": NEIGHBORS[neighbors](shape) if isinstance(neighbors, str) else neighbors,
        "position": POSITIONS[position](shape),
    }
    query = shape.normal(*shape.lead, shape.heads, shape.queries, shape.dim)
    key = shape.normal(*shape.lead, shape.key_heads, shape.keys, shape.dim)
    value = shape.normal(*shape.lead, shape.key_heads, shape.keys, shape.value_dim)
    kind = pieces["similarity"].make(**pieces["similarity"].tensors)
    if isinstance(kind, heedful.Argmax) and not rotary(position):
        # Whole numbers: scores are exact, so that ties are ties in every strategy and precision.
        query, key = query.round(), key.round()
    if isinstance(kind, heedful.Polynomial):
        query, key = well_conditioned(query, key, kind, shape, turned=rotary(position))
    if single:
        query, key, value = query[0], key[0], value[0]
    tensors = {"query": query, "key": key, "value": value}
    for name, piece in pieces.items():
        tensors |= {f"{name}.{own}": x for own, x in piece.tensors.items()}
    return Case(tensors, pieces)


def well_conditioned(query, key, polynomial, shape, turned: bool):
    """Move queries and keys towards a common direction until every (q·k + c)^p is at least a fiftieth of what
    its terms could add up to.

    A sum of features whose terms cancel is lost to rounding (and for odd degrees the normaliser itself may
    cross zero): a property of the problem, so it is taken out of the problem, not added to the tolerance.
    """
    constant, degree = polynomial.constant, polynomial.degree
    if turned:  # whatever the angles, |q·k| stays below half the constant
        shrink = abs(constant / 2) ** 0.5
        return (x / x.norm(dim=-1, keepdim=True).amax().clamp_min(1e-3) * shrink for x in (query, key))
    common = torch.full((shape.dim,), 2 / shape.dim**0.5, dtype=torch.float64)  # |common|² = 4
    signs = torch.where(shape.flags(*key.shape[:-1], 1), 1.0, -1.0).double() if degree % 2 == 0 else 1.0
    for blend in (0.0, 0.25, 0.5, 0.75, 0.9, 1.0):
        q = (1 - blend) * query + blend * common
        k = signs * ((1 - blend) * key + blend * common)
        repeated = k.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
        score = q @ repeated.mT + constant
        size = (
            (q.square().sum(-1) + abs(constant))[..., :, None]
            * (repeated.square().sum(-1) + abs(constant))[..., None, :]
        ).sqrt()
        share = score / size if degree % 2 else score.abs() / size
        if bool((share.clamp_min(0) ** degree >= 0.02).all()):
            break
    return (q * 64).round() / 64, (k * 64).round() / 64


def error(found: Tensor, wanted: Tensor, floor: float = 0.0) -> float:
    """‖found − wanted‖ / ‖wanted‖, or by `floor` where that is larger."""
    difference = float(torch.linalg.vector_norm(found.double() - wanted.double()))
    size = max(float(torch.linalg.vector_norm(wanted.double())), floor)
    return difference if size == 0 else difference / size


TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


def assert_agree(
    found: dict[str, Tensor], wanted: dict[str, Tensor], case: Case, what: str, tolerance: float
) -> None:
    """Output and gradients agree in relative norm.

    Where terms cancel (one neighbour: the gradient by its key is exactly 0) there is nothing to compare with,
    so a gradient counts as no smaller than a hundredth of the terms it is the sum of. The slack this gives is
    1e-6 of those terms in float32, some ten roundings, and 1e-11 in float64.
    """
    size = {name: float(case.tensors[name].abs().amax()) for name in ("query", "key", "value")}
    if "neighbors.edge_value" in case.tensors:
        size["value"] += float(case.tensors["neighbors.edge_value"].abs().amax())
    terms = wanted["output"].numel() ** 0.5 * size["value"] * (1 + size["query"]) * (1 + size["key"])
    similarity = case.build(case.tensors)[1]["similarity"]
    if isinstance(
        similarity, heedful.Polynomial
    ):  # ∂ log sim / ∂k = degree · q / (q·k + c), large for short vectors
        rows = [case.tensors[name].square().sum(-1) + abs(similarity.constant) for name in ("query", "key")]
        terms *= 2 * similarity.degree / min(1.0, *(float(x.amin().sqrt()) for x in rows))
    distance = max(case.tensors["query"].shape[-2], case.tensors["key"].shape[-2])
    for name, expected in wanted.items():
        assert found[name].shape == expected.shape, f"{what}: {name}"
        assert bool(found[name].isfinite().all()), f"{what}: {name} is not finite"
        floor = 1e-2 * (
            size["value"] if name == "output" else terms * distance if name.endswith("slopes") else terms
        )
        got = error(found[name], expected, floor)
        assert got <= tolerance, f"{what}: {name} is off by {got:.2g} (‖wanted‖ = {expected.norm():.2g})"
