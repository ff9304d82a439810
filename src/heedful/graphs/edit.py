"""Graphs out of graphs: edges added, dropped or merged, nodes chosen or renamed. Attributes follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from . import batch, check
from .attributes import concatenate, extend, select
from .spectral import edge_weight
from .structure import Slots, Structure, pointers

if TYPE_CHECKING:
    from .graph import Graph


def with_self_loops(graph: Graph, fill: dict[str, float]) -> Graph:
    """See `Graph.with_self_loops`; in a bipartite graph target i is taken for source i."""
    if torch.compiler.is_compiling() and not graph.structure.knows_loops:
        return _with_loops_for_all(graph, fill)
    structure = graph.structure.looped
    if fill["weight"] != 1 and graph.weight is None:
        graph = graph.with_edges(weight=edge_weight(graph))
    attributes = extend(graph.attributes, structure.edges - graph.edges, fill)
    return type(graph)(structure, sizes=graph.sizes, **attributes)


def _with_loops_for_all(graph: Graph, fill: dict[str, float]) -> Graph:
    """The same to whoever propagates or attends: a loop for every node, of weight 0 where there was one. A
    compiler cannot tell how many are missing, but knows how many nodes there are.
    """
    weight, every = edge_weight(graph), torch.arange(graph.targets, device=graph.device)
    own = (graph.source == graph.target).to(weight.dtype)
    had = torch.zeros(graph.targets, dtype=weight.dtype, device=graph.device).index_add(0, graph.target, own)
    loops = (fill["weight"] * (had == 0)).to(weight.dtype).expand(*weight.shape[:-1], -1)
    attributes = extend(graph.attributes, graph.targets, fill)
    return _add(graph, every, every, attributes | {"weight": torch.cat([weight, loops], -1)})


def undirected(graph: Graph) -> Graph:
    """See `Graph.undirected`."""
    nodes = graph.nodes
    forth = graph.target * nodes + graph.source
    back = graph.source * nodes + graph.target
    single = (~torch.isin(back, forth)).nonzero().squeeze(1)
    attributes = concatenate([graph.attributes, select(graph.attributes, single)], where="undirected()")
    return _add(graph, graph.target[single], graph.source[single], attributes)


def _add(graph: Graph, source: Tensor, target: Tensor, attributes: dict[str, Tensor]) -> Graph:
    source, target = torch.cat([graph.source, source]), torch.cat([graph.target, target])
    structure = Structure.from_edges(source, target, graph.sources, graph.targets)
    return type(graph)(structure, sizes=graph.sizes, **attributes)


def intersection(graph: Graph, other: Graph) -> Graph:
    """See `Graph.__and__`."""
    here, there = _numbered(graph, other, "&")
    if other.attributes:
        lost = " and ".join(other.attributes)
        raise ValueError(f"graph & other: other's {lost} would be lost; put the graph that carries it first.")
    return filter_edges(graph, torch.isin(here, there))


def union(graph: Graph, other: Graph) -> Graph:
    """See `Graph.__or__`."""
    here, there = _numbered(graph, other, "|")
    new = (~torch.isin(there, here)).nonzero().squeeze(1)
    attributes = concatenate([graph.attributes, select(other.attributes, new)], where="graph | other")
    joined = _add(graph, other.source[new], other.target[new], attributes)
    if graph.sizes != other.sizes and len(batch.crossed(joined)):
        joined.sizes = ((joined.targets, joined.sources),)  # no longer side by side: one graph
    return joined


def _numbered(graph: Graph, other: Graph, sign: str) -> tuple[Tensor, Tensor]:
    """One number for each pair of ends, the same in both graphs."""
    if (graph.sources, graph.targets) != (other.sources, other.targets):
        raise ValueError(
            f"graph {sign} other: {graph.sources} sources and {graph.targets} targets meet "
            f"{other.sources} and {other.targets}; both must be over the same nodes."
        )
    if graph.device != other.device:
        raise ValueError(f"graph {sign} other: one is on {graph.device}, the other on {other.device}.")
    return graph.target * graph.sources + graph.source, other.target * graph.sources + other.source


def filter_edges(graph: Graph, keep) -> Graph:
    """See `Graph.filter`."""
    keep = torch.as_tensor(keep, device=graph.device)
    if keep.dtype != torch.bool:
        raise TypeError(f"filter(): keep must be boolean, one value an edge, got {keep.dtype}.")
    if keep.shape != (graph.edges,):
        raise ValueError(
            f"filter(): keep has shape {tuple(keep.shape)}; it takes ({graph.edges},), one value an edge."
        )
    rowptr, col, edge = graph.structure.forward
    stays = keep[edge]  # slot by slot: what stays is sorted already
    renumbered = keep.cumsum(0) - 1
    slots = Slots(pointers(stays, rowptr.dtype)[rowptr], col[stays], renumbered[edge[stays]].to(rowptr.dtype))
    attributes = select(graph.attributes, keep.nonzero().squeeze(1))
    return type(graph)(Structure(slots, graph.sources), sizes=graph.sizes, **attributes)


def coalesce(graph: Graph) -> Graph:
    """See `Graph.coalesce`."""
    unmergeable = [name for name in graph.attributes if name != "weight"]
    if unmergeable:
        raise ValueError(
            f"coalesce(): the graph carries {', '.join(unmergeable)}, and there is no rule for merging "
            f"those; drop them first (with_edges({unmergeable[0]}=None))."
        )
    edge = graph.edge
    place = (graph.target * graph.sources + graph.source)[edge]  # ascending
    place, merged = torch.unique_consecutive(place, return_inverse=True)
    source, target = place % max(graph.sources, 1), place // max(graph.sources, 1)
    weight = graph.weight
    if weight is not None:
        in_slots = weight.index_select(-1, edge)
        weight = in_slots.new_zeros(*weight.shape[:-1], len(place)).index_add(-1, merged, in_slots)
    structure = Structure.from_edges(source, target, graph.sources, graph.targets)
    return type(graph)(structure, sizes=graph.sizes, weight=weight)


def subgraph(graph: Graph, nodes, *, where: str = "subgraph()") -> Graph:
    """See `Graph.subgraph`."""
    given = torch.as_tensor(nodes, device=graph.device)
    if given.dtype == torch.bool:
        if given.shape != (graph.nodes,):
            raise ValueError(f"{where}: the mask has shape {tuple(given.shape)}; it takes ({graph.nodes},).")
        given = given.nonzero().squeeze(1)
    elif given.numel() == 0:
        given = given.long()
    chosen = check.indices("nodes", given, where=where)
    check.within("nodes", chosen, graph.nodes, where=where, of="nodes")
    distinct("nodes", chosen, where=where)
    label = torch.full((graph.nodes,), -1, device=graph.device)
    label[chosen] = torch.arange(len(chosen), device=graph.device)
    source, target = label[graph.source], label[graph.target]
    kept = ((source >= 0) & (target >= 0)).nonzero().squeeze(1)
    structure = Structure.from_edges(source[kept], target[kept], len(chosen), len(chosen))
    return type(graph)(structure, sizes=None, **select(graph.attributes, kept))


def permute(graph: Graph, order) -> Graph:
    """See `Graph.permute`."""
    order = check.indices("order", order, where="permute()")
    if len(order) != graph.nodes:
        raise ValueError(
            f"permute(): order has {len(order)} entries, the graph {graph.nodes} nodes; list each once."
        )
    renamed = subgraph(graph, order, where="permute()")
    if len(graph.sizes) > 1 and all(targets == sources for targets, sources in graph.sizes):
        member = graph.batch_index
        if torch.equal(member[order], member):  # each graph's nodes stay where its nodes were
            renamed.sizes = graph.sizes
    return renamed


def local_order(graph: Graph) -> Tensor:
    """See `Graph.local_order`."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    nodes = graph.nodes
    if not nodes:
        return torch.zeros(0, dtype=torch.int64, device=graph.device)
    rowptr, col = graph.rowptr.cpu().numpy(), graph.col.cpu().numpy()
    # Ones, because a weight of 0 would be no edge; as floats, because int8's add up to 0 at 256 of them.
    listens = csr_array((np.ones(len(col), np.float32), col, rowptr), shape=(nodes, nodes))
    both = (listens + listens.T).tocsr()
    order = reverse_cuthill_mckee(both, symmetric_mode=True).astype(np.int64)
    return torch.from_numpy(order).to(graph.device)


def distinct(name: str, index: Tensor, *, where: str) -> None:
    """No node is listed twice."""
    values, counts = torch.unique(index, return_counts=True)
    if len(values) < len(index):
        raise ValueError(
            f"{where}: {name} lists node {int(values[counts > 1][0])} more than once; each may appear once."
        )
