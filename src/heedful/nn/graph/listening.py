"""Who speaks, who listens, and to themselves: what the layers make of their arguments before they begin."""

from __future__ import annotations

import torch
from torch import Tensor

from ...attention.neighbors import Neighbors
from ...graphs import Graph, edit
from .edges import incidence
from .features import Features, as_features, nodes_of, width_of

Inputs = Features | tuple[Features, Features]


def both(inputs: int | tuple[int, int]) -> tuple[int, int]:
    """Widths of speakers and listeners, given as a pair or as one number."""
    speakers, listeners = inputs if isinstance(inputs, (tuple, list)) else (inputs, inputs)
    return speakers, listeners


def one_of(inputs: tuple[int, int]) -> int | tuple[int, int]:
    """The same for printing."""
    return inputs[0] if inputs[0] == inputs[1] else inputs


def ends(
    where: str, x: Inputs, neighbors: Graph | Neighbors, inputs: tuple[int, int]
) -> tuple[Features, Features]:
    """(speakers, listeners) of a call, checked against the graph and the widths the layer takes.

    A pair (speakers, listeners) is what it says. One table is both; in a bipartite graph the listeners are
    then the first of the speakers, as in the layers of `Graph.sample` (`of_listeners` takes their rows).
    """
    pair = isinstance(x, (tuple, list))
    given = tuple(x) if isinstance(x, (tuple, list)) else (x,)
    if len(given) != (2 if pair else 1):
        raise ValueError(f"{where}: x is {len(given)} tables; it takes one, or (speakers, listeners).")
    speakers, listeners = as_features(given[0]), as_features(given[-1])
    names = ("x[0]", "x[1]") if pair else ("x", "x")
    for name, table, width in zip(names, (speakers, listeners), inputs, strict=True):
        if not isinstance(table, Graph) and table.dim() < 2:
            raise ValueError(
                f"{where}: {name} has shape {tuple(table.shape)}; it takes (..., nodes, {width})."
            )
        if width_of(table) != width:
            raise ValueError(f"{where}: {name} has {width_of(table)} features; the layer takes {width}.")
    if not isinstance(neighbors, Graph):
        if not isinstance(neighbors, Neighbors):
            raise no_graph(where, neighbors, "a Graph or neighbors such as Everyone()")
        return speakers, listeners
    if nodes_of(speakers) != neighbors.sources:
        raise ValueError(
            f"{where}: {names[0]} has {nodes_of(speakers)} nodes; {neighbors} has {neighbors.sources}."
        )
    if pair and nodes_of(listeners) != neighbors.targets:
        raise ValueError(
            f"{where}: x[1] has {nodes_of(listeners)} nodes; {neighbors} has {neighbors.targets}."
        )
    if not pair and neighbors.targets > neighbors.sources:
        raise ValueError(
            f"{where}: {neighbors} has more listeners than speakers, so x cannot be both; pass a pair "
            f"(speakers, listeners)."
        )
    return speakers, listeners


def no_graph(where: str, given: object, takes: str = "a Graph") -> TypeError:
    """What to say where something else was given in place of a graph."""
    if not isinstance(given, Tensor):
        return TypeError(f"{where}: graph must be {takes}, got {given!r:.60}.")
    return TypeError(
        f"{where}: graph must be {takes}, got a tensor of shape {tuple(given.shape)}; of edges make one by "
        f"Graph.from_edge_index(edges, nodes=…)."
    )


def of_listeners(z: Tensor, neighbors: Graph | Neighbors) -> Tensor:
    """The rows of the listeners, out of those of all who speak."""
    if not isinstance(neighbors, Graph) or z.shape[-2] == neighbors.targets:
        return z
    return z[..., : neighbors.targets, :]


def listening_to_self(where: str, x: Inputs, neighbors: Graph | Neighbors, *, weight: float = 1.0):
    """The graph with a loop for everyone who has none; a pattern such as Everyone() stays as it is."""
    if not isinstance(neighbors, Graph):
        return neighbors
    if isinstance(x, (tuple, list)):
        raise ValueError(
            f"{where}: listeners and speakers are different things, so nobody hears themselves; "
            f"build the layer with self_loops=False."
        )
    return edit.with_self_loops(neighbors, {"weight": weight, "bias": 0.0, "key": 0.0, "value": 0.0})


def along_loops(values: Tensor, graph: Graph, looped: Graph) -> Tensor:
    """Values of edges (..., edges, width) with those of the added loops: the mean of what the node hears."""
    if looped.edges == graph.edges:
        return values
    loops = looped.target[graph.edges :]
    mean = incidence(graph).listen.aggregate(values, "mean")
    return torch.cat([values, mean.index_select(-2, loops)], -2)


def edge_rows(
    where: str, features: Tensor | None, graph: Graph | Neighbors, width: int | None
) -> Tensor | None:
    """The features of edges, one row an edge in the caller's order, checked."""
    if width is None:
        if features is not None:
            raise ValueError(
                f"{where}: got edge_features, but the layer was built without; say how wide they are."
            )
        return None
    if not isinstance(graph, Graph):
        raise TypeError(f"{where}: edge_features need a Graph, whose edges they belong to; got {graph!r}.")
    if features is None:
        raise ValueError(
            f"{where}: the layer was built with edge_features={width}; pass ({graph.edges}, {width})."
        )
    if features.dim() < 2 or tuple(features.shape[-2:]) != (graph.edges, width):
        raise ValueError(
            f"{where}: edge_features has shape {tuple(features.shape)}; it takes ({graph.edges}, {width}), "
            f"one row an edge."
        )
    return features
