"""One row a graph out of one row a node."""

from __future__ import annotations

import torch
from torch import Tensor

from ...graphs import Graph
from ...graphs.structure import Slots, Structure


def readout(x: Tensor, graph: Graph, kind: str = "mean") -> Tensor:
    """out_g = the sum, mean, max, min, median or std of x_i over the nodes i of g; (..., graphs, width).

    x is (..., nodes, width) over a graph made by `Graph.batch`, or a single one.

    >>> both = Graph.batch([Graph.complete(2), Graph.empty(1)])
    >>> readout(torch.tensor([[1.0], [3.0], [5.0]]), both, "mean")
    tensor([[2.],
            [5.]])
    """
    if not isinstance(graph, Graph):
        got = f"a tensor of shape {tuple(graph.shape)}" if isinstance(graph, Tensor) else repr(graph)[:60]
        raise TypeError(f"readout(): graph must be a Graph, such as Graph.batch([…]) makes, got {got}.")
    return _membership(graph).aggregate(x, kind)


def _membership(graph: Graph) -> Graph:
    """A graph hears its nodes: they come in order, so nothing needs sorting."""
    index, device = graph.rowptr.dtype, graph.device
    sizes = torch.tensor([0, *(targets for targets, _ in graph.sizes)], dtype=index, device=device)
    nodes = torch.arange(graph.targets + 1, dtype=index, device=device)
    forward = Slots(sizes.cumsum(0).to(index), nodes[:-1], nodes[:-1])
    backward = Slots(nodes, graph.batch_index.to(index), nodes[:-1])
    return Graph(Structure(forward, graph.targets, backward=backward))
