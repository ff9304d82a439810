"""Edge lists in CSR, fused: online softmax along each row, no tensor with an entry an edge.

Any pattern that can be listed runs here too, so a window with a few global tokens costs its pairs and no
more. The inner loops live in `heedful.kernels.sparse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ...kernels.parallel import WORTH_A_THREAD
from ...kernels.sparse import Structure, sparse_attention
from ...kernels.sparse_operators import WORTH_A_SHAPE, on_gpu
from ..cost import TRANSCENDENTAL, Cost
from .base import Strategy
from .reference import edge_bias, prepare_launches

KINDS = ("dot", "power", "additive", "additive_v2", "uniform")
# Adding up across a vector register, which comparing whole keys needs for every edge, costs like so many
# FLOPs; and how much longer than the forward pass the backward ones take. Both measured on the kernels.
REDUCTION = {"additive": 0, "uniform": 100, "dot": 400, "additive_v2": 400, "power": 800}
BACKWARD = {"additive": 1.5, "uniform": 1.8, "dot": 2.6, "additive_v2": 3.0, "power": 4.0}
WIDEST = 4096  # features a head that a GPU program's registers hold
WORTH_ROOM = 1 << 14
ROW = 4096  # bytes of a row that registers and the first cache have room for
LISTING = 23, 5000  # launches, and FLOPs that take as long as a pair, to list a mask, as every call does
MOST_EDGES = 1 << 28  # listing more than this many pairs is not what an edge list is for


class Sparse(Strategy):
    name = "sparse"

    def accepts(self, problem):
        if problem.similarity.kind not in KINDS:
            return f"{problem.similarity.name} has no edge kernel (there are {', '.join(KINDS)})"
        if not problem.neighbors.listed:
            return "a mask of its own for each batch entry"
        if problem.neighbors.pairs > MOST_EDGES:
            return f"{problem.neighbors.pairs:.2g} pairs are too many to list"
        if problem.device not in ("cpu", "cuda"):
            return f"no kernel for {problem.device}"
        if problem.device == "cuda":
            if find_spec("triton") is None:
                return "its GPU kernels need Triton (pip install triton)"
            if max(problem.dim, problem.value_dim) > WIDEST:
                return f"GPU kernels take at most {WIDEST} features a head"
        if problem.transform == "compile" and not problem.neighbors.graph:
            return "torch.compile cannot list the pairs of a pattern; pass a Graph"
        return None

    def flavor(self, problem):
        extras = problem.neighbors.attributes or problem.position
        plain = problem.neighbors.lasting and not extras
        return "sparse additive" if problem.similarity.kind == "additive" and plain else self.name

    def cost(self, problem):
        once = self._pass(problem)
        if problem.neighbors.lasting:
            return once
        launches, each = LISTING
        return once + Cost(each * problem.neighbors.pairs, 0, 0, launches)

    def _pass(self, problem):
        edges, kind = problem.rows * problem.neighbors.pairs, problem.similarity.kind
        dim, value_dim = problem.dim, problem.value_dim
        if problem.device == "cpu":  # as `_in_good_shapes` fills them
            dim, value_dim = _power_of_two(dim), _power_of_two(value_dim)
        score = {"uniform": 0, "additive": 3, "additive_v2": 4 * dim}.get(kind, 2 * dim)
        weight = TRANSCENDENTAL if problem.similarity.log_form else 2 * problem.similarity.degree
        position = 3 * problem.item * edges if problem.position else 0
        return Cost(
            edges * (score + weight + 2 * value_dim + REDUCTION[kind] + (20 if problem.dropout else 0)),
            problem.item * edges * (dim + value_dim)
            + 8 * problem.neighbors.pairs
            + problem.tensor_bytes
            + position,
            problem.rows * problem.queries * 2 * problem.item + position,
            # Handing work over to other threads takes as long as several operations.
            (8 if edges * (dim + value_dim) >= WORTH_A_THREAD else 3)
            + 6 * (problem.position is not None)
            + prepare_launches(problem),
        )

    def backward_cost(self, problem):
        return self._pass(problem).times(BACKWARD[problem.similarity.kind], memory=2)

    def run(self, call):
        graph = call.neighbors.graph(call.queries, call.keys, call.query.device)
        if _is_mean(call, graph):
            return graph.propagate(call.value) / graph.in_degree().clamp(min=1).to(call.value.dtype)[:, None]
        similarity, lead = call.similarity, call.query.shape[:-2]
        extra = None if similarity.kind == "uniform" else graph.key
        if similarity.kind == "power":
            query, key, extra = _prepare_power(similarity, call.query, call.key, extra)
        else:
            query, key = similarity.prepare(call.query, call.key)
        weight = getattr(similarity, "weight", None)
        operands = _Operands(
            _nodes_first(query),
            _nodes_first(key),
            _nodes_first(call.value),
            None if weight is None else torch.atleast_2d(weight).expand(*lead, -1).reshape(lead.numel(), -1),
            _edges_first(edge_bias(call, graph), lead, 1),
            _edges_first(graph.weight, lead, 1),
            _edges_first(extra, lead, 2),
            _edges_first(graph.value, lead, 2),
        )
        structure = Structure(
            graph.rowptr, graph.col, graph.edge, lambda: (graph.colptr, graph.row, graph.edge_transposed)
        )

        def attention(operands: _Operands) -> Tensor:
            return sparse_attention(
                similarity.kind, operands.q, operands.k, operands.v, structure,
                a=operands.a, bias=operands.bias, weight=operands.weight, key=operands.key,
                value=operands.value,
                slope=getattr(similarity, "slope", 0.0), degree=similarity.degree,
                dropout=call.dropout, seed=call.seed, implied=not call.facts.graph,
            )  # fmt: skip

        out = _in_good_shapes(similarity.kind, operands, graph.edges, attention, whole=call.dropout > 0)
        return out.transpose(0, 1).unflatten(0, lead)


def _is_mean(call, graph) -> bool:
    """A plain mean, which on a GPU is a sum: fewer launches, and neither a maximum nor weights to keep.

    Half precision would be summed wide but rounded before it is divided.
    """
    return (
        call.similarity.kind == "uniform"
        and on_gpu(call.value.device)
        and call.value.dtype in (torch.float32, torch.float64)
        and not (call.dropout or graph.attributes or call.position)
    )


class _Operands(NamedTuple):
    """Nodes (N, H, ·), `a` (H, ·), edges (E, 1 or H) and (E, 1 or H, ·)."""

    q: Tensor
    k: Tensor
    v: Tensor
    a: Tensor | None
    bias: Tensor | None
    weight: Tensor | None
    key: Tensor | None
    value: Tensor | None

    def filled(self, heads: int, key_features: int, features: int) -> _Operands:
        """Zeros after what there is, up to so many heads and features: they change nothing before them."""

        def fill(t, width, at):
            if t is None:
                return None
            room = 0 if t.shape[at] == 1 < self.v.shape[1] else heads - t.shape[at]  # shared by heads, or not
            sides = (0, room) if width is None else (0, width - t.shape[-1], 0, room)
            return F.pad(t, sides) if any(sides) else t

        return _Operands(
            fill(self.q, key_features, 1),
            fill(self.k, key_features, 1),
            fill(self.v, features, 1),
            fill(self.a, key_features, 0),
            fill(self.bias, None, 1),
            fill(self.weight, None, 1),
            fill(self.key, key_features, 1),
            fill(self.value, features, 1),
        )

    def split(self, heads: list[int]) -> Iterator[_Operands]:
        """A few heads at a time."""

        def parts(t, at):
            shared = t is None or t.shape[at] == 1 < self.v.shape[1]
            return [t] * len(heads) if shared else t.split(heads, at)

        return map(_Operands, *(parts(t, 0 if t is self.a else 1) for t in self))


def _in_good_shapes(kind: str, operands: _Operands, edges: int, attention: Callable, whole: bool) -> Tensor:
    """Attention in shapes the CPU has quick kernels for: heads and features in powers of two, few enough for
    the registers. LLVM turns other vectors into shuffles: 12 heads took 3.4 times as long as 16, 96 features
    4 times as long as 128. Heads go in parts (8 + 4), or (`whole`, as dropout counts them) as 16.
    """
    (_, heads, features), key_features = operands.v.shape, operands.q.shape[-1]
    plain = kind == "additive" and not any(t is not None for t in operands[4:])
    work = edges * heads * (key_features + features)
    if (
        torch.compiler.is_compiling()
        or operands.v.device.type != "cpu"
        or work < (WORTH_ROOM if plain else WORTH_A_SHAPE)
    ):
        return attention(operands)
    # Plain GAT has kernels at hand for rows of 8 and more, if the heads are few.
    least = 8 if plain and work < WORTH_A_SHAPE else 1
    width, key_width = max(least, _power_of_two(features)), _power_of_two(key_features)
    most = ROW // (operands.v.element_size() * max(width, key_width, 1))
    most = min(most, 8) if least == 8 else most
    if most == 0 or (whole and _power_of_two(heads) > most):
        return attention(operands)
    parts = [_power_of_two(heads)] if whole else _powers_of_two(heads, most)
    if whole:
        return attention(operands.filled(parts[0], key_width, width))[:, :heads, :features]
    filled = operands.filled(heads, key_width, width)
    if len(parts) == 1:
        out = attention(filled)
    else:
        out = torch.cat([attention(part) for part in filled.split(parts)], 1)
    return out[..., :features]


def _power_of_two(number: int) -> int:
    """The smallest that is no smaller; 0 for 0."""
    return 1 << (number - 1).bit_length() if number else 0


def _powers_of_two(number: int, most: int) -> list[int]:
    """Powers of two that add up to a number, the largest first, none above `most`."""
    parts = []
    while number:
        parts.append(min(1 << (number.bit_length() - 1), 1 << (most.bit_length() - 1)))
        number -= parts[-1]
    return parts


def _prepare_power(similarity, query: Tensor, key: Tensor, extra: Tensor | None):
    """`Polynomial.prepare` when edges add to the keys: they share the factor the keys are divided by."""
    if extra is None:
        return *similarity.prepare(query, key), None
    size = 2 * torch.maximum(similarity.key_size(key), similarity.key_size(extra))  # a power of two still
    padding = extra.new_zeros(extra.shape[:-1] + (int(similarity.constant != 0),))
    extra = torch.cat([extra, padding], -1) / size
    return similarity.prepare_query(query), similarity.append_root(key, sign=True) / size, extra


def _nodes_first(x: Tensor) -> Tensor:
    """(..., H, N, d) → (N, all heads, d), free of copying when the layer made it from (N, H·d)."""
    return x.flatten(0, -3).transpose(0, 1).contiguous()


def _edges_first(x: Tensor | None, lead: torch.Size, trailing: int) -> Tensor | None:
    """(E, ·) or (..., H, E, ·) → (E, 1 or all heads, ·)."""
    if x is None:
        return None
    if x.dim() == trailing:
        return x.unsqueeze(1).contiguous()
    if x.shape[:-trailing].numel() > 1:
        x = x.expand(*lead, *x.shape[-trailing:])
    return x.flatten(0, -trailing - 1).transpose(0, 1).contiguous()
