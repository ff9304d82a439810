"""Graphs from and to what other libraries use: edge lists, matrices, scipy, networkx."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import check
from .spectral import edge_weight
from .structure import Structure

if TYPE_CHECKING:
    from .graph import Graph


def from_edges(kind: type[Graph], source, target, nodes, sources, targets, weight, *, where: str) -> Graph:
    """See `Graph.from_edges`."""
    source = check.indices("source", source, where=where)
    target = check.indices("target", target, where=where)
    if source.shape != target.shape:
        raise ValueError(
            f"{where}: source has {len(source)} entries, target {len(target)}; an edge needs one of each."
        )
    if source.device != target.device:
        raise ValueError(
            f"{where}: source is on {source.device}, target on {target.device}; move one of them."
        )
    if nodes is not None and (sources is not None or targets is not None):
        raise ValueError(f"{where}: give nodes, or sources and targets, not both.")
    if nodes is not None:
        sources = targets = check.count("nodes", nodes, where=where)
    elif sources is None and targets is None:
        sources = targets = max(_next(source), _next(target))
    else:
        sources = _next(source) if sources is None else check.count("sources", sources, where=where)
        targets = _next(target) if targets is None else check.count("targets", targets, where=where)
    check.within("source", source, sources, where=where, of="sources" if nodes is None else "nodes")
    check.within("target", target, targets, where=where, of="targets" if nodes is None else "nodes")
    weight = check.attribute("weight", weight, source.shape[0], source.device, where=where)
    return kind(Structure.from_edges(source, target, sources, targets), weight=weight)


def _next(index: Tensor) -> int:
    return int(index.max()) + 1 if len(index) else 0


def from_edge_index(kind: type[Graph], edge_index, nodes, weight) -> Graph:
    """See `Graph.from_edge_index`."""
    where = "Graph.from_edge_index()"
    edge_index = check.tensor_of("edge_index", edge_index, "whole numbers", where=where)
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(
            f"{where}: edge_index has shape {tuple(edge_index.shape)}; "
            "it takes (2, edges), sources above targets."
        )
    sources = targets = None
    if isinstance(nodes, (tuple, list)):
        if len(nodes) != 2:
            raise ValueError(f"{where}: nodes is {nodes!r}; it takes a number, or (sources, targets).")
        (sources, targets), nodes = nodes, None
    return from_edges(kind, edge_index[0], edge_index[1], nodes, sources, targets, weight, where=where)


def from_dense(kind: type[Graph], matrix) -> Graph:
    """See `Graph.from_dense`."""
    matrix = check.tensor_of("matrix", matrix, "numbers", where="Graph.from_dense()")
    if matrix.dim() != 2:
        raise ValueError(
            f"Graph.from_dense(): matrix has shape {tuple(matrix.shape)}; it takes (targets, sources)."
        )
    target, source = matrix.detach().nonzero(as_tuple=True)
    structure = Structure.from_edges(source, target, matrix.shape[1], matrix.shape[0])
    return kind(structure, weight=_weights(matrix[target, source], "Graph.from_dense()"))


def from_scipy(kind: type[Graph], matrix) -> Graph:
    """See `Graph.from_scipy`."""
    if not hasattr(matrix, "tocoo"):
        raise TypeError(
            f"Graph.from_scipy(): matrix must be one of scipy.sparse, got {type(matrix).__name__}; "
            f"Graph.from_dense() takes arrays."
        )
    matrix = matrix.tocoo()
    source, target = (torch.as_tensor(ends).long() for ends in (matrix.col, matrix.row))
    structure = Structure.from_edges(source, target, matrix.shape[1], matrix.shape[0])
    return kind(structure, weight=_weights(torch.as_tensor(matrix.data), "Graph.from_scipy()"))


def _weights(values: Tensor, where: str) -> Tensor | None:
    """The entries of a matrix as weights: none if they are boolean, floats if they are whole numbers."""
    if values.is_complex():
        raise TypeError(f"{where}: matrix is {values.dtype}; weights are real numbers, so pass matrix.real.")
    if values.dtype == torch.bool:
        return None
    return values if values.is_floating_point() else values.to(torch.get_default_dtype())


def from_networkx(kind: type[Graph], graph, weight: str | None) -> Graph:
    """See `Graph.from_networkx`."""
    import networkx

    where = "Graph.from_networkx()"
    if not isinstance(graph, networkx.Graph):
        raise TypeError(f"{where}: graph must be one of networkx, got {type(graph).__name__}.")
    number = {node: i for i, node in enumerate(graph.nodes)}
    edges = list(graph.edges(data=True))
    triples = [(number[u], number[v], _number(u, v, data, weight, where)) for u, v, data in edges]
    if not graph.is_directed():
        triples += [(v, u, w) for u, v, w in triples if u != v]
    weights = None
    if weight is not None and any(weight in data for *_, data in edges):
        weights = torch.tensor([w for *_, w in triples])
    source, target = [u for u, _, _ in triples], [v for _, v, _ in triples]
    return from_edges(kind, source, target, len(number), None, None, weights, where=where)


def _number(u, v, data: dict, weight: str | None, where: str) -> float:
    """The weight of the edge from u to v, 1 where it has none."""
    given = 1.0 if weight is None else data.get(weight, 1.0)
    try:
        return float(given)
    except (TypeError, ValueError):
        raise TypeError(
            f"{where}: edge ({u!r}, {v!r}) has {weight} {given!r}; it takes a number, or none at all."
        ) from None


def to_scipy(graph: Graph):
    """See `Graph.to_scipy`."""
    from scipy.sparse import csr_array

    weight = _one_weight(graph, "to_scipy()").detach()[graph.edge]
    arrays = (weight.cpu().numpy(), graph.col.cpu().numpy(), graph.rowptr.cpu().numpy())
    return csr_array(arrays, shape=(graph.targets, graph.sources), copy=True)


def to_networkx(graph: Graph):
    """See `Graph.to_networkx`."""
    import networkx

    ends = list(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    result = networkx.DiGraph() if len(set(ends)) == len(ends) else networkx.MultiDiGraph()
    result.add_nodes_from(range(graph.nodes))
    if graph.weight is None:
        result.add_edges_from(ends)
    else:
        weights = _one_weight(graph, "to_networkx()").tolist()
        result.add_edges_from((u, v, {"weight": w}) for (u, v), w in zip(ends, weights, strict=True))
    return result


def to_torch_sparse(graph: Graph) -> Tensor:
    """See `Graph.to_torch_sparse`."""
    weight = _one_weight(graph, "to_torch_sparse()")
    # torch's CSR allows no duplicates, so they are added up first.
    graph = type(graph)(graph.structure, weight=weight).coalesce()
    values = edge_weight(graph).index_select(0, graph.edge)
    size = (graph.targets, graph.sources)
    return torch.sparse_csr_tensor(graph.rowptr, graph.col, values, size, check_invariants=False)


def _one_weight(graph: Graph, where: str) -> Tensor:
    weight = edge_weight(graph)
    if weight.dim() > 1:
        raise ValueError(f"{where}: weight has shape {tuple(weight.shape)}; a matrix has one number an edge.")
    return weight
