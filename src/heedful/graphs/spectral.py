"""Degrees, and the matrices made of them: adjacency, Laplacians, powers, normalised weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import check
from .propagate import propagate
from .structure import Structure

if TYPE_CHECKING:
    from .graph import Graph

LAPLACIANS = ("combinatorial", "symmetric", "random_walk")
NORMALIZATIONS = ("symmetric", "row")


def invert(x: Tensor, power: float = 1.0) -> Tensor:
    """x^−power, and 0 (with gradient 0) where x is 0."""
    zero = x == 0
    return torch.where(zero, 0, torch.where(zero, 1, x) ** -power)


def in_degree(graph: Graph, weighted: bool) -> Tensor:
    """d_i = Σ_{j→i} w_ij, or the number of edges into i."""
    if not weighted:
        return graph.rowptr.diff().long()
    like = edge_weight(graph)
    return propagate(graph, like.new_ones(graph.sources, 1), graph.weight).squeeze(-1)


def edge_weight(graph: Graph) -> Tensor:
    """The weights, or ones."""
    return torch.ones(graph.edges, device=graph.device) if graph.weight is None else graph.weight


def adjacency(graph: Graph) -> Tensor:
    """A[i, j] = Σ of the weights of the edges j→i."""
    weight = edge_weight(graph)
    place = graph.target * graph.sources + graph.source
    flat = weight.new_zeros(*weight.shape[:-1], graph.targets * graph.sources).index_add(-1, place, weight)
    return flat.unflatten(-1, (graph.targets, graph.sources))


def normalized(graph: Graph, kind: str) -> Graph:
    """See `Graph.normalized`."""
    check.choice("kind", kind, NORMALIZATIONS, where="normalized()")
    return graph.with_edges(weight=_normalized_weight(graph, kind, in_degree(graph, weighted=True)))


def _normalized_weight(graph: Graph, kind: str, degree: Tensor) -> Tensor:
    weight = edge_weight(graph)
    if kind == "row":
        return weight * invert(degree).index_select(-1, graph.target)
    _ = graph.nodes  # a bipartite graph has no degree for its speakers: say so
    root = invert(degree, 0.5)
    return weight * root.index_select(-1, graph.target) * root.index_select(-1, graph.source)


def laplacian(graph: Graph, kind: str) -> Graph:
    """The Laplacian as a graph: the edges, their weights negated, and a loop a node for the diagonal."""
    check.choice("kind", kind, LAPLACIANS, where="laplacian()")
    nodes = graph.nodes
    degree = in_degree(graph, weighted=True)
    if kind == "combinatorial":
        diagonal, weight = degree, edge_weight(graph)
    else:
        diagonal = (degree != 0).to(degree.dtype)
        weight = _normalized_weight(graph, "row" if kind == "random_walk" else "symmetric", degree)
    loops = torch.arange(nodes, device=graph.device)
    ends = torch.cat([graph.source, loops]), torch.cat([graph.target, loops])
    structure = Structure.from_edges(*ends, nodes, nodes)
    return type(graph)(structure, sizes=graph.sizes, weight=torch.cat([-weight, diagonal], dim=-1))


def walks(graph: Graph, length: int) -> Tensor:
    """See `Graph.walks`."""
    length, nodes = check.count("length", length, where="walks()"), graph.nodes
    if graph.weight is not None:
        return torch.linalg.matrix_power(adjacency(graph), length)
    matrix = adjacency(
        graph.with_edges(weight=torch.ones(graph.edges, dtype=torch.float64, device=graph.device))
    )
    count, peak = _power(matrix, length)
    if peak < 2**53:
        return count.long()  # doubles this small are whole numbers, so nothing was rounded
    largest = float(count.max()) if nodes else 0.0
    slack = 1 + 1e-9  # far above the rounding of a few dozen products of non-negative numbers
    if largest < 2**63 / slack:
        return _power(matrix.long(), length)[0]  # what wraps on the way wraps back: the answer fits
    if largest < 2**63 * slack:
        exact = _power_of_integers(matrix, length)
        if max(map(max, exact)) < 2**63:
            return torch.tensor(exact, device=graph.device)
    raise OverflowError(
        f"walks(): some pair of nodes is joined by about {largest:.3g} walks of length {length}, more than "
        "int64 holds (9.2e18). For a rounded count give it weights: with_edges(weight=torch.ones(edges))."
    )


def _power(matrix: Tensor, exponent: int) -> tuple[Tensor, float]:
    """matrix^exponent by repeated squaring, and the largest entry met on the way."""
    result = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    peak = 0.0
    while exponent:
        if exponent & 1:
            result = result @ matrix
            peak = max(peak, _largest(result))
        exponent >>= 1
        if exponent:
            matrix = matrix @ matrix
            peak = max(peak, _largest(matrix))
    return result, peak


def _largest(matrix: Tensor) -> float:
    return float(matrix.max()) if matrix.numel() else 0.0


def _power_of_integers(matrix: Tensor, exponent: int) -> list[list[int]]:
    """The same in Python's unbounded integers: slow, and needed only within 1e-9 of the end of int64."""
    import numpy as np

    whole = matrix.long().cpu().numpy().astype(object)
    return np.linalg.matrix_power(whole, exponent).tolist()
