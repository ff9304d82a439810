"""How much neighbours differ."""

from __future__ import annotations

from torch import Tensor

from ..graphs import Graph


def dirichlet_energy(graph: Graph, x: Tensor, *, normalized: bool = True) -> Tensor:
    """E(x) = ½ Σ_{j→i} w_ij ‖x_i/√d_i − x_j/√d_j‖²: zero when neighbours agree, which is over-smoothing.

    d_i = 1 + in-degree, as GCN counts with its self-loops; `normalized=False` leaves the √d out. The sum over
    both directions of an undirected graph is tr(xᵀ L x).

    >>> import torch
    >>> path = Graph.from_edges([0, 1], [1, 0])
    >>> dirichlet_energy(path, torch.tensor([[1.0], [3.0]]), normalized=False)
    tensor(4.)
    """
    if graph.sources != graph.targets:
        raise ValueError(
            "dirichlet_energy(): the graph joins two sets of nodes; it takes one among its own nodes."
        )
    if len(x) != graph.sources:
        raise ValueError(f"dirichlet_energy(): x has {len(x)} rows, the graph {graph.sources} nodes.")
    if normalized:
        x = x / (1 + graph.degree()).to(x.dtype).sqrt().unsqueeze(-1)
    gap = (x[graph.target] - x[graph.source]).square().sum(-1)
    return 0.5 * (gap if graph.weight is None else gap * graph.weight).sum()
