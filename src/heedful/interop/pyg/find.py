"""From what the caller passed as edge_index to the edges a layer runs over; graphs are made once and kept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...attention.transforms import exporting
from ...graphs import Graph, check
from ...graphs.structure import Structure
from .cache import Cache
from .edges import Edges
from .grouped import GroupedEdges, group
from .traced import TracedEdges

# All layers of a model share one graph. Whoever keeps more of them alive at once sorts their edges anew.
GRAPHS = Cache(limit=256)


# A lookup by identity means nothing to a tracer: torch.compile runs it as it is, between two graphs.
_untraced = torch.compiler.disable(reason="looked up by identity; pass a Graph to have one whole graph")


def find_edges(
    edge_index: Any, device: torch.device, sources: int, targets: int, loops: int | None, *, where: str
) -> Edges:
    """The edges, self-loops as they are (None) or replaced by one for each of the first `loops` nodes."""
    if isinstance(edge_index, Graph):
        _check_graph(edge_index, sources, targets, where)
    else:
        edge_index = _as_tensor(edge_index, where)
    if edge_index.device != device:
        raise ValueError(f"{where}: edge_index is on {edge_index.device}, x on {device}; move one of them.")
    if exporting():
        index = edge_index.to_edge_index() if isinstance(edge_index, Graph) else edge_index
        return TracedEdges(index, targets, loops)
    compiling = torch.compiler.is_compiling()
    if not isinstance(edge_index, Graph):
        return _edges_of_tensor(edge_index, sources, targets, loops, compiling, where)
    if loops is None and compiling:
        return GroupedEdges(edge_index, given=edge_index.edges)
    return _edges_of_graph(edge_index, loops, compiling)


@_untraced
def _edges_of_tensor(
    edge_index: Tensor, sources: int, targets: int, loops: int | None, compiling: bool, where: str
) -> GroupedEdges:
    def make() -> GroupedEdges:
        check.within("edge_index[0]", edge_index[0], sources, where=where, of="source nodes")
        check.within("edge_index[1]", edge_index[1], targets, where=where, of="target nodes")
        return group(edge_index, sources, targets, loops)

    return _ready(GRAPHS.get(edge_index, (sources, targets, loops), make), compiling)


@_untraced
def _edges_of_graph(graph: Graph, loops: int | None, compiling: bool) -> GroupedEdges:
    def make() -> GroupedEdges:
        if loops is not None:
            return group(graph.to_edge_index(), graph.sources, graph.targets, loops)
        # The structure itself would be kept alive by what is kept for it.
        twin = Structure(graph.structure.forward, graph.sources, backward=graph.structure.backward)
        return GroupedEdges(Graph(twin), given=graph.edges)

    return _ready(GRAPHS.get(graph.structure, loops, make), compiling)


def _ready(edges: GroupedEdges, compiling: bool) -> GroupedEdges:
    """A graph makes its transpose when someone first asks; that must not be a compiled function."""
    if compiling and torch.is_grad_enabled():
        _ = edges.graph.structure.backward
    return edges


def _as_tensor(edge_index: Any, where: str) -> Tensor:
    if hasattr(edge_index, "as_tensor"):  # PyG's EdgeIndex
        edge_index = edge_index.as_tensor()
    if type(edge_index).__name__ == "SparseTensor" or (
        isinstance(edge_index, Tensor) and edge_index.layout != torch.strided
    ):
        raise NotImplementedError(
            f"{where}: edge_index is a sparse matrix; pass the edges as a (2, edges) tensor, sources above "
            "targets. For a transposed adjacency: row, col, _ = adj_t.coo(); torch.stack([col, row])."
        )
    if not isinstance(edge_index, Tensor):
        raise TypeError(
            f"{where}: edge_index must be a (2, edges) tensor or a Graph, got {type(edge_index).__name__}."
        )
    if edge_index.is_floating_point() or edge_index.is_complex() or edge_index.dtype == torch.bool:
        raise TypeError(
            f"{where}: edge_index must hold whole numbers (node indices), got {edge_index.dtype}."
        )
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(
            f"{where}: edge_index has shape {tuple(edge_index.shape)}; it takes (2, edges), sources above "
            "targets."
        )
    return edge_index


def _check_graph(graph: Graph, sources: int, targets: int, where: str) -> None:
    if (graph.sources, graph.targets) != (sources, targets):
        raise ValueError(
            f"{where}: {graph!r} has {graph.sources} sources and {graph.targets} targets, but x has "
            f"{sources} and {targets} rows for them."
        )
    if graph.attributes:
        carried = next(iter(graph.attributes))
        raise ValueError(
            f"{where}: {graph!r} carries {', '.join(graph.attributes)}, which this layer does not use; drop "
            f"it (graph.with_edges({carried}=None)), or pass edge features as edge_attr."
        )
