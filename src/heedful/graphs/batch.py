"""Many graphs as one: side by side on the diagonal, so that one call serves them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .attributes import concatenate, select
from .structure import Slots, Structure, index_dtype

if TYPE_CHECKING:
    from .graph import Graph


def batch(kind: type[Graph], graphs: Sequence[Graph]) -> Graph:
    """See `Graph.batch`."""
    if isinstance(graphs, kind) or not isinstance(graphs, Iterable):
        raise TypeError(f"Graph.batch(): graphs is {graphs!r:.60}; it takes a list of graphs.")
    graphs = list(graphs)
    for place, graph in enumerate(graphs):
        if not isinstance(graph, kind):
            raise TypeError(f"Graph.batch(): graphs[{place}] is {graph!r:.60}; it takes graphs.")
    if not graphs:
        raise ValueError("Graph.batch(): got no graphs; it takes at least one.")
    devices = sorted({str(g.device) for g in graphs})
    if len(devices) > 1:
        raise ValueError(
            f"Graph.batch(): the graphs are on {' and '.join(devices)}; move them to one device."
        )
    targets, sources, edges = (sum(getattr(g, n) for g in graphs) for n in ("targets", "sources", "edges"))
    dtype = index_dtype(targets, sources, edges)
    rowptr, col, edge = [torch.zeros(1, dtype=dtype, device=graphs[0].device)], [], []
    edges_before = sources_before = 0
    for graph in graphs:
        # Offsets keep the slots sorted: nothing needs sorting again.
        rowptr.append(graph.rowptr[1:].to(dtype) + edges_before)
        col.append(graph.col.to(dtype) + sources_before)
        edge.append(graph.edge.to(dtype) + edges_before)
        edges_before, sources_before = edges_before + graph.edges, sources_before + graph.sources
    structure = Structure(Slots(torch.cat(rowptr), torch.cat(col), torch.cat(edge)), sources)
    sizes = tuple(size for g in graphs for size in g.sizes)
    return type(graphs[0])(
        structure, sizes=sizes, **concatenate([g.attributes for g in graphs], where="Graph.batch()")
    )


def batch_index(graph: Graph) -> Tensor:
    """The number of the graph each listening node belongs to."""
    return _members([targets for targets, _ in graph.sizes], graph.targets, graph.device)


def crossed(graph: Graph) -> Tensor:
    """The edges from one graph of a batch to another, by number."""
    heard = _members([sources for _, sources in graph.sizes], graph.sources, graph.device)
    return (heard[graph.source] != batch_index(graph)[graph.target]).nonzero().squeeze(1)


def _members(sizes: list[int], total: int, device) -> Tensor:
    each = torch.arange(len(sizes), device=device)
    return each.repeat_interleave(torch.tensor(sizes, device=device), output_size=total)


def unbatch(graph: Graph) -> list[Graph]:
    """See `Graph.unbatch`."""
    if len(between := crossed(graph)):
        edge = int(between[0])
        raise ValueError(
            f"unbatch(): edge {edge}, from node {int(graph.source[edge])} to {int(graph.target[edge])}, "
            f"joins two graphs of the batch; filter out such edges first."
        )
    member = batch_index(graph)[graph.target]
    order = torch.argsort(member, stable=True)  # edges of one graph together, in the order they had
    counts = torch.bincount(member, minlength=len(graph.sizes)).tolist()
    parts, targets_before, sources_before = [], 0, 0
    for (targets, sources), ids in zip(graph.sizes, order.split(counts), strict=True):
        source, target = graph.source[ids] - sources_before, graph.target[ids] - targets_before
        structure = Structure.from_edges(source, target, sources, targets)
        parts.append(type(graph)(structure, sizes=None, **select(graph.attributes, ids)))
        targets_before, sources_before = targets_before + targets, sources_before + sources
    return parts
