"""Edges as things of their own: what they hear from their ends, and what listeners hear from them."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch

from ...graphs import Graph
from ...graphs.structure import Slots, Structure, lasting


class Incidence(NamedTuple):
    """Three bipartite graphs whose edges are numbered as the graph's own.

    Gathering by `propagate` instead of by index: its backward pass is a sum over sorted edges, on all cores
    and always in the same order, where index_add goes one by one (13 against 220 ms for 400,000 edges of 64).
    """

    speak: Graph  # edge e hears its source
    hear: Graph  # edge e hears its target
    listen: Graph  # target i hears the edges that end at it


def incidence(graph: Graph) -> Incidence:
    """The three, worked out once for a structure; they carry no weights."""
    structure = graph.structure
    if torch.compiler.is_compiling():
        return _incidence(structure)
    if structure not in _KEPT:
        with lasting(*structure.forward):
            _KEPT[structure] = _incidence(structure)
    return _KEPT[structure]


_KEPT: WeakKeyDictionary[Structure, Incidence] = WeakKeyDictionary()


def _incidence(structure: Structure) -> Incidence:
    source, target = structure.ends
    index = structure.forward.rowptr.dtype
    every = torch.arange(structure.edges + 1, dtype=index, device=source.device)
    each = every[:-1]

    def grouped(end, pointers):
        """Who hears each edge's end, and the edges at each end."""
        order = torch.argsort(end, stable=True).to(index)
        return Slots(every, end.to(index), each), Slots(pointers, order, order)

    edge_hears_source, source_has_edges = grouped(source, structure.backward.rowptr)
    edge_hears_target, target_has_edges = grouped(target, structure.forward.rowptr)
    speak = Structure(edge_hears_source, structure.sources, backward=source_has_edges)
    hear = Structure(edge_hears_target, structure.targets, backward=target_has_edges)
    return Incidence(Graph(speak), Graph(hear), Graph(hear.reverse()))
