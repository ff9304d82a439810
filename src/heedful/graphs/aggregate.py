"""One number per node and feature out of what its neighbours say: sum, mean, max, min, median, std."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.kernels.aggregate import neighbor_argmax, sorted_slots

from . import check
from .propagate import propagate
from .spectral import invert
from .structure import row_of_slot

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
        low, high = _middle(graph, columns.detach())
        return (_pick(columns, low) + _pick(columns, high)) / 2

    return _over_columns(graph, x, halfway)


def _middle(graph: Graph, columns: Tensor) -> tuple[Tensor, Tensor]:
    """The sources of each node's two middle values (one and the same if their count is odd); −1 if none."""
    start, stop = graph.rowptr[:-1].long(), graph.rowptr[1:].long()
    slots = sorted_slots(graph.rowptr, graph.col, columns)  # (edges, features)
    last = slots[(stop - 1).clamp(min=0)]
    spoiled = columns.gather(0, graph.col[last].long()).isnan()  # NaN sorts last, and must not be outvoted
    alone = (start == stop).unsqueeze(-1)

    def at(position):
        slot = slots[position.clamp(0, graph.edges - 1)]
        return graph.col[torch.where(spoiled, last, slot)].long().masked_fill(alone, -1)

    return at((start + stop - 1) // 2), at((start + stop) // 2)


def _std(graph: Graph, x: Tensor) -> Tensor:
    def spread(columns):
        source, row = graph.col.long(), row_of_slot(graph.structure.forward)
        share = invert(graph.degree().to(x.dtype)).unsqueeze(-1)
        # Measured from the first neighbour, far-away values lose no digits and equal ones give exactly 0.
        anchor = columns.detach().index_select(0, source[graph.rowptr[:-1].long().clamp(max=graph.edges - 1)])
        offset = columns.index_select(0, source) - anchor.index_select(0, row)  # (edges, features)
        mean = _sum_slots(graph, offset, row) * share
        variance = _sum_slots(graph, (offset - mean.index_select(0, row)).square(), row) * share
        spread_out = variance > 0
        # sqrt has no derivative at 0; the inner `where` keeps its infinity out of the gradient.
        return torch.where(spread_out, torch.where(spread_out, variance, 1).sqrt(), variance)

    return _over_columns(graph, x, spread)


def _sum_slots(graph: Graph, slots: Tensor, row: Tensor) -> Tensor:
    return slots.new_zeros(graph.targets, slots.shape[1]).index_add(0, row, slots)


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
