"""A few neighbours of a few nodes: the part of a large graph that a minibatch needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from . import check
from .attributes import select
from .edit import distinct
from .structure import Structure, pointers

if TYPE_CHECKING:
    from .graph import Graph


@dataclass(frozen=True, eq=False)
class Sample:
    """What `Graph.sample` drew.

    graph:  all sampled nodes and edges, relabelled 0, 1, …
    nodes:  their original numbers; the seeds come first, in the order given, then hop by hop
    edges:  the original number of each edge of `graph`
    layers: one bipartite graph a hop, in the order a network applies them: the first listens to all of
            `nodes`, the last ends at the seeds; the targets of each are the first of its sources
    """

    graph: Graph
    nodes: Tensor
    edges: Tensor
    layers: list[Graph]


def sample(graph: Graph, seeds, fanout, generator: torch.Generator | None, replace: bool) -> Sample:
    """See `Graph.sample`."""
    total = graph.nodes
    known = check.indices("seeds", seeds, where="sample()").to(graph.device)
    check.within("seeds", known, total, where="sample()", of="nodes")
    distinct("seeds", known, where="sample()")
    label = torch.full((total,), -1, device=graph.device)
    label[known] = torch.arange(len(known), device=graph.device)
    frontier, drawn = known, []
    reached, crossed = [len(known)], [0]  # nodes and edges after each hop
    for most in _fanouts(fanout):
        slots = _draw(graph, frontier, most, generator, replace)
        drawn.append(graph.edge[slots].long())
        frontier = torch.unique(graph.col[slots].long())
        frontier = frontier[label[frontier] < 0]
        label[frontier] = torch.arange(len(known), len(known) + len(frontier), device=graph.device)
        known = torch.cat([known, frontier])
        reached.append(len(known))
        crossed.append(crossed[-1] + len(slots))
    edges = torch.cat(drawn)
    source, target = label[graph.source[edges]], label[graph.target[edges]]

    def part(first: int, sources: int, targets: int) -> Graph:
        structure = Structure.from_edges(source[:first], target[:first], sources, targets)
        return type(graph)(structure, sizes=None, **select(graph.attributes, edges[:first]))

    hops = range(len(drawn), 0, -1)
    layers = [part(crossed[hop], reached[hop], reached[hop - 1]) for hop in hops]
    return Sample(part(len(edges), len(known), len(known)), known, edges, layers)


def _fanouts(fanout) -> list[int]:
    given = list(fanout) if isinstance(fanout, Sequence) else [fanout]
    if not given:
        raise ValueError("sample(): fanout is empty; it takes a number, or one number a hop.")
    fanouts = []
    for number in map(check.whole, given):
        if number is None:
            raise TypeError(f"sample(): fanout must be a whole number, or one a hop, got {fanout!r}.")
        if number < -1:
            raise ValueError(f"sample(): fanout is {number}; it takes 0 or more, or −1 for all neighbours.")
        fanouts.append(number)
    return fanouts


def _draw(graph: Graph, nodes: Tensor, most: int, generator, replace: bool) -> Tensor:
    """The slots of at most `most` edges into each node, all of them if `most` is −1."""
    start = graph.rowptr[nodes].long()
    degree = graph.rowptr[nodes + 1].long() - start
    if replace and most >= 0:
        heard = degree > 0
        start, degree = start[heard].unsqueeze(1), degree[heard].unsqueeze(1)
        chance = _uniform((len(start), most), generator, graph.device)
        return (start + (chance * degree).long().clamp(max=degree - 1)).flatten()
    begin = pointers(degree, torch.int64)
    owner = torch.arange(len(nodes), device=graph.device).repeat_interleave(
        degree, output_size=int(begin[-1])
    )
    slots = (start - begin[:-1])[owner] + torch.arange(len(owner), device=graph.device)
    if most < 0 or not bool((degree > most).any()):
        return slots
    # Shuffle each node's slots by a random key and keep the first few, back in slot order.
    shuffled = torch.argsort(_uniform((len(slots),), generator, graph.device), stable=True)
    shuffled = shuffled[torch.argsort(owner[shuffled], stable=True)]
    rank = torch.arange(len(slots), device=graph.device) - begin[owner]
    return slots[shuffled[rank < most].sort().values]


def _uniform(shape, generator, device) -> Tensor:
    where = device if generator is None else generator.device
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=where).to(device)
