"""One number per node and feature out of what its neighbours say: sum, mean, max, min, median, std."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.kernels.aggregate import neighbor_argmax, neighbor_middle

from . import check
from .propagate import propagate
from .spectral import invert
from .structure import Slots, Structure, row_of_slot

if TYPE_CHECKING:
    from .graph import Graph


def aggregate(graph: Graph, x: Tensor, kind: str) -> Tensor:
    """See `Graph.aggregate`."""
    check.choice("kind", kind, _KINDS, where="aggregate()")
    check.features(x, graph.sources, graph.device, where="aggregate()")
    return _KINDS[kind](graph, x)


def _sum(graph: Graph, x: Tensor) -> Tensor:
    return propagate(graph, x, graph.weight)


def _mean(graph: Graph, x: Tensor) -> Tensor:
    total = graph.degree(weighted=True) if graph.weight is not None else graph.degree().to(x.dtype)
    return _sum(graph, x) * invert(total).unsqueeze(-1)


def _max(graph: Graph, x: Tensor) -> Tensor:
    return _over_columns(graph, x, lambda columns: _pick(columns, _extreme(graph, columns, True)))


def _min(graph: Graph, x: Tensor) -> Tensor:
    return _over_columns(graph, x, lambda columns: _pick(columns, _extreme(graph, columns, False)))


def _extreme(graph: Graph, columns: Tensor, largest: bool) -> Tensor:
    return neighbor_argmax(graph.rowptr, graph.col, columns.detach(), largest)


def _median(graph: Graph, x: Tensor) -> Tensor:
    def halfway(columns):
        low, high = neighbor_middle(graph.rowptr, graph.col, columns.detach())
        return (_pick(columns, low) + _pick(columns, high)) / 2

    return _over_columns(graph, x, halfway)


def _std(graph: Graph, x: Tensor) -> Tensor:
    speak, listen = _through_slots(graph)
    share = invert(graph.degree().to(x.dtype)).unsqueeze(-1)  # 1 / n

    def spread(columns):
        # Measured from the first neighbour, far-away values lose no digits and equal ones give exactly 0.
        first = graph.col[graph.rowptr[:-1].clamp(max=graph.edges - 1)]
        anchor = listen.reverse().propagate(columns.detach().index_select(0, first))
        offset = speak.propagate(columns) - anchor  # (edges, features)
        mean = listen.propagate(offset) * share
        variance = listen.propagate((offset - listen.reverse().propagate(mean)).square()) * share
        positive = variance > 0
        # sqrt has no derivative at 0; the inner `where` keeps its infinity out of the gradient.
        return torch.where(positive, torch.where(positive, variance, 1).sqrt(), variance)

    return _over_columns(graph, x, spread)


def _through_slots(graph: Graph) -> tuple[Graph, Graph]:
    """The graph in two steps, every slot a node of its own: sources → slots, and slots → targets."""
    every = torch.arange(graph.edges + 1, dtype=graph.col.dtype, device=graph.device)
    each = every[:-1]
    slot = torch.empty_like(graph.edge)
    slot[graph.edge] = each  # the slot of each edge
    heard = slot[graph.edge_transposed]
    speak = Structure(
        Slots(every, graph.col, each), graph.sources, backward=Slots(graph.colptr, heard, heard)
    )
    row = row_of_slot(graph.structure.forward).to(each.dtype)
    listen = Structure(Slots(graph.rowptr, each, each), graph.edges, backward=Slots(every, row, each))
    return type(graph)(speak), type(graph)(listen)


def _pick(columns: Tensor, index: Tensor) -> Tensor:
    """columns[index[i, f], f], and 0 where the index is −1."""
    return columns.gather(0, index.clamp(min=0)).masked_fill(index < 0, 0)


def _over_columns(graph: Graph, x: Tensor, function) -> Tensor:
    """Apply a function of (sources, columns) to x of any leading shape."""
    if graph.edges == 0:
        return propagate(graph, x, None)  # zeros, still attached to x
    *lead, _, width = x.shape
    columns = x.movedim(-2, 0).reshape(graph.sources, -1) if x.numel() else x.new_zeros(graph.sources, 0)
    return function(columns).reshape(graph.targets, *lead, width).movedim(0, -2)


_KINDS = {"sum": _sum, "mean": _mean, "max": _max, "min": _min, "median": _median, "std": _std}
