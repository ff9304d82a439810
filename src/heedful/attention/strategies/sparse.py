"""Edge lists in CSR, fused: online softmax along each row, no tensor with an entry an edge.

Any pattern that can be listed runs here too, so a window with a few global tokens costs its pairs and no
more. The inner loops live in `heedful.kernels.sparse`.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional as F

from ...kernels.sparse import Structure, sparse_attention
from ...kernels.sparse_operators import WORTH_A_SHAPE
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
        return "sparse additive" if problem.similarity.kind == "additive" and not extras else self.name

    def cost(self, problem):
        edges, kind = problem.rows * problem.neighbors.pairs, problem.similarity.kind
        score = {"uniform": 0, "additive": 3, "additive_v2": 4 * problem.dim}.get(kind, 2 * problem.dim)
        weight = TRANSCENDENTAL if problem.similarity.log_form else 2 * problem.similarity.degree
        position = 3 * problem.item * edges if problem.position else 0
        return Cost(
            edges
            * (score + weight + 2 * problem.value_dim + REDUCTION[kind] + (20 if problem.dropout else 0)),
            problem.item * edges * (problem.dim + problem.value_dim)
            + 8 * problem.neighbors.pairs
            + problem.tensor_bytes
            + position,
            problem.rows * problem.queries * 2 * problem.item + position,
            8 + 6 * (problem.position is not None) + prepare_launches(problem),
        )

    def backward_cost(self, problem):
        return self.cost(problem).times(BACKWARD[problem.similarity.kind], memory=2)

    def run(self, call):
        graph = call.neighbors.graph(call.queries, call.keys, call.query.device)
        similarity, lead = call.similarity, call.query.shape[:-2]
        extra = None if similarity.kind == "uniform" else graph.key
        if similarity.kind == "power":
            query, key, extra = _prepare_power(similarity, call.query, call.key, extra)
        else:
            query, key = similarity.prepare(call.query, call.key)
        heads, value = lead.numel(), _nodes_first(call.value)
        bias = _edges_first(edge_bias(call, graph), lead, 1)
        plain = similarity.kind == "additive" and bias is None and not graph.attributes
        room = _room(value, graph.edges) if plain else 0
        weight = getattr(similarity, "weight", None)
        out = sparse_attention(
            similarity.kind,
            _nodes_first(query),
            _nodes_first(key),
            F.pad(value, (0, room)) if room else value,
            Structure(
                graph.rowptr, graph.col, graph.edge, lambda: (graph.colptr, graph.row, graph.edge_transposed)
            ),
            a=None if weight is None else torch.atleast_2d(weight).expand(*lead, -1).reshape(heads, -1),
            bias=bias,
            weight=_edges_first(graph.weight, lead, 1),
            key=_edges_first(extra, lead, 2),
            value=_edges_first(graph.value, lead, 2),
            slope=getattr(similarity, "slope", 0.0),
            degree=similarity.degree,
            dropout=call.dropout,
            seed=call.seed,
            implied=not call.facts.graph,
        )
        out = out[..., : value.shape[-1]] if room else out
        return out.transpose(0, 1).unflatten(0, lead)


def _prepare_power(similarity, query: Tensor, key: Tensor, extra: Tensor | None):
    """`Polynomial.prepare` when edges add to the keys: they share the factor the keys are divided by."""
    if extra is None:
        return *similarity.prepare(query, key), None
    size = 2 * torch.maximum(similarity.key_size(key), similarity.key_size(extra))  # a power of two still
    padding = extra.new_zeros(extra.shape[:-1] + (int(similarity.constant != 0),))
    extra = torch.cat([extra, padding], -1) / size
    return similarity.prepare_query(query), similarity.append_root(key, sign=True) / size, extra


def _room(value: Tensor, edges: int) -> int:
    """How many zeros to put after each row. GAT has kernels of its own for rows of 8, 16, 32 and 64 numbers,
    by which seven classes as eight take a quarter of the time. Tiny problems need not wait for a compiler,
    and large ones get kernels for what they are.
    """
    _, heads, width = value.shape
    if torch.compiler.is_compiling() or value.device.type != "cpu" or width > 64 or heads not in (1, 2, 4, 8):
        return 0
    if not WORTH_ROOM <= edges * heads * (1 + width) < WORTH_A_SHAPE:
        return 0
    return next(usual for usual in (8, 16, 32, 64) if usual >= width) - width


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
