"""Nodes of a graph: of a trained GAT, or nodes that listen to nodes with neighbors in common."""

from __future__ import annotations

import copy
import re
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ... import data
from ...attention import Everyone
from ...attention.similarity import Softmax
from ...attention.weights import weigh
from ...data import GraphData
from ...graphs import Graph
from ...lab import Kept
from ...phrases import suggestion
from .seen import Call, Seen
from .view import View

BUILT_IN = ("karate", "les-miserables")
FEW = 8
NODES = 400  # of a graph that is typed
EDGES = 2_000_000  # of a graph of steps
SHARP = 4.0  # as for words
_LINE = re.compile(r"(?P<first>[^,>\s]+)\s*(?P<mark>[,>]|\s)\s*(?P<second>[^,>\s]+)")


def look(view: View, found: Kept | None) -> Seen:
    return _nodes(view) if found is None else _model(view, found)


def reach(graph: Graph, steps: int) -> Graph:
    """Who is at most so many steps away, oneself included.

    >>> reach(Graph.from_edges([0, 1, 2], [1, 2, 3], nodes=4), 2)
    Graph(4 nodes, 9 edges)
    """
    import scipy.sparse

    plain = Graph.from_edges(graph.source, graph.target, nodes=graph.nodes, weight=torch.ones(graph.edges))
    once, found = plain.to_scipy().tocsr(), scipy.sparse.eye_array(graph.nodes, format="csr")
    for _ in range(steps):
        further = found + found @ once
        if further.nnz == found.nnz:
            break
        if further.nnz > EDGES:
            raise ValueError(f"window is {steps}: so many steps reach {further.nnz:,} pairs; take fewer.")
        further.data[:] = 1
        found = further
    return Graph.from_scipy(found.astype(bool))


def typed(text: str) -> tuple[Graph, list[str]]:
    """A graph from lines: `a b` hear each other, `a > b` lets b hear a. And the nodes' names.

    >>> typed("a b\\nb > c")
    (Graph(3 nodes, 3 edges), ['a', 'b', 'c'])
    """
    names: dict[str, int] = {}
    edges: dict[tuple[int, int], None] = {}
    for place, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise ValueError(
                f"edges, line {place} is {line.strip()[:40]!r}; it takes two names: a b, or a > b."
            )
        one, two = (names.setdefault(found[part], len(names)) for part in ("first", "second"))
        edges[one, two] = None
        if found["mark"] != ">":
            edges[two, one] = None
    if not edges:
        raise ValueError("edges is empty; type a pair of names a line.")
    if len(names) > NODES:
        raise ValueError(f"edges name {len(names)} nodes; it takes {NODES} at most.")
    source, target = zip(*edges, strict=True)
    return Graph.from_edges(source, target, nodes=len(names)), list(names)


@lru_cache(maxsize=4)
def _load(name: str) -> tuple[GraphData, Graph]:
    """A set of that name, its features normalised, and these as edges of a bipartite graph: most are zero."""
    found = data.load(name).row_normalized()
    return found, Graph.from_dense(found.features)


_OWN: WeakKeyDictionary[Any, list[Graph]] = WeakKeyDictionary()


def _own(model: Any, x: Graph, graph: Graph) -> list[Graph]:
    """α of a model as it is, asked for at every move of a slider."""
    if model not in _OWN:
        _OWN[model] = model.attention(x, graph)
    return _OWN[model]


def _names(found: GraphData) -> list[str]:
    return list(found.node_names) or [str(node) for node in range(found.graph.nodes)]


def _center(view: View, names: list[str], graph: Graph) -> int:
    """The node asked for, by name; else the first with about FEW neighbors: a hub hears all of them alike."""
    if not view.node:
        return int((graph.in_degree() - FEW).abs().argmin())
    if view.node not in names:
        raise ValueError(f"There is no node {view.node!r}{suggestion(view.node, names) or '.'}")
    return names.index(view.node)


def around(center: int, alpha: Graph, most: int) -> Tensor:
    """The nodes that matter to one: step by step those heard most by the nodes there are, at most so many."""
    assert alpha.weight is not None
    weight = alpha.weight.mean(0)  # over heads
    inside = torch.zeros(alpha.nodes, dtype=torch.bool)
    inside[center] = True
    for _ in range(4):
        heard = torch.zeros(alpha.nodes).index_add_(0, alpha.source, weight * inside[alpha.target])
        heard[inside] = 0
        room = most - int(inside.sum())
        new = heard.topk(min(room, int((heard > 0).sum()))).indices
        if not len(new):
            break
        inside[new] = True
    return inside.nonzero().squeeze(1)


def places(graph: Graph, nodes: Tensor) -> Tensor:
    """Where to draw nodes, (nodes, 2) from 0 to 1: neighbors near each other, the same at every call."""
    import networkx

    drawn = graph.subgraph(nodes).to_networkx().to_undirected()
    drawn.remove_edges_from(list(networkx.selfloop_edges(drawn)))
    # Pieces that do not hang together would drift apart without end.
    found = networkx.spring_layout(drawn, seed=0, k=1.6 / max(1, len(nodes)) ** 0.5, iterations=80)
    at = torch.tensor([found[node].tolist() for node in drawn], dtype=torch.float64)
    low, high = at.amin(0), at.amax(0)
    return (at - low) / (high - low).clamp_min(1e-9)


def _model(view: View, found: Kept) -> Seen:
    """A GAT on the graph it was trained on; exp(β · leaky(l + s)) = exp(leaky(βl + βs)), uniform at β = 0."""
    if view.similarity not in ("own", "uniform"):
        raise ValueError(f"similarity is {view.similarity!r}; a GAT takes its own, with any β, or uniform.")
    if view.neighbors == "everyone":
        raise ValueError("neighbors is 'everyone'; a GAT takes its own edges, or a window of steps.")
    sets, x = _load(found.notes["dataset"])
    model: Any = found.model
    names, classes = _names(sets), list(sets.classes)
    center = _center(view, names, sets.graph)
    own = _own(model, x, sets.graph)
    # Whom to show follows from the model as it is, so that what changes is the attention, not the picture.
    nodes = around(center, own[0], view.most)
    graph = reach(sets.graph, view.window) if view.neighbors == "window" else sets.graph
    beta = 0.0 if view.similarity == "uniform" else view.beta
    if beta != 1:
        model = copy.deepcopy(model)
        with torch.no_grad():
            for layer in model.layers:
                layer.listener.mul_(beta)
                layer.speaker.mul_(beta)
    alphas = own if model is found.model and graph is sets.graph else model.attention(x, graph)
    with torch.inference_mode():
        chances = model(x, graph)[center].softmax(0)
    first = model.layers[0]
    similarity = "Uniform()" if beta == 0 else f"{first.similarity}{f' at β = {beta:g}' if beta != 1 else ''}"
    best = int(chances.argmax())
    truth = classes[int(sets.labels[center])]
    about = [
        str(found),
        f"{len(nodes)} of {sets.graph.nodes} nodes: {names[center]} and those that matter to it most",
        f"it is {truth}, the model says {classes[best]} ({100 * float(chances[best]):.0f} %)",
        f"{similarity}, {graph}",
    ]
    shown = {
        "places": places(sets.graph, nodes),
        "groups": sets.labels[nodes].tolist(),
        "classes": classes,
        "chosen": int((nodes == center).nonzero()),
    }
    call = Call(first.heads, graph.nodes, 1, first.similarity, graph.with_self_loops(), value_dim=first.dim)
    tokens = [names[node] for node in nodes.tolist()]
    return Seen([among(alpha, nodes) for alpha in alphas], tokens, about, call, shown)


def among(alpha: Graph, nodes: Tensor) -> Tensor:
    """The weights between some nodes, (heads, nodes, nodes)."""
    assert alpha.weight is not None
    place = torch.full((alpha.nodes,), -1)
    place[nodes] = torch.arange(len(nodes))
    listener, speaker = place[alpha.target], place[alpha.source]
    inside = (listener >= 0) & (speaker >= 0)
    found = torch.zeros(len(alpha.weight), len(nodes), len(nodes))
    found[:, listener[inside], speaker[inside]] = alpha.weight[:, inside]
    return found


def _nodes(view: View) -> Seen:
    """A node as the row of its neighbors and itself, of length 1: q_i = k_i, so common ones make alike."""
    groups: list[int] | None = None
    classes: tuple[str, ...] = ()
    if view.graph == "typed":
        graph, names = typed(view.edges)
    elif view.graph in BUILT_IN:
        found, _ = _load(view.graph)
        graph, names = found.graph, _names(found)
        groups, classes = found.labels.tolist(), found.classes
    else:
        raise ValueError(f"graph is {view.graph!r}; it is one of {', '.join(BUILT_IN)}, typed.")
    center = _center(view, names, graph)
    looped = reach(graph, 1)
    x = torch.zeros(graph.nodes, graph.nodes)
    x[looped.target, looped.source] = 1.0
    x = (x / x.norm(dim=1, keepdim=True))[None]
    neighbors: Any = looped
    if view.neighbors != "own":
        neighbors = Everyone() if view.neighbors == "everyone" else reach(graph, view.window)
    similarity = view.similar(Softmax(SHARP), SHARP)
    call = Call(1, graph.nodes, x.shape[-1], similarity, neighbors)
    weights = weigh(x, x, similarity=similarity, neighbors=neighbors)
    about = ["nodes that listen to nodes with neighbors in common", view.graph, str(call)]
    nodes = torch.arange(graph.nodes)
    if graph.nodes > view.most:
        own = weigh(x, x, similarity=Softmax(SHARP), neighbors=looped)
        alpha = looped.with_edges(weight=own[:, looped.target, looped.source])
        nodes = around(center, alpha, view.most)
        about.append(f"{len(nodes)} of {graph.nodes} nodes: {names[center]} and those that matter to it most")
    shown: dict[str, Any] = {"places": places(graph, nodes)}
    if groups is not None:
        shown |= {"groups": [groups[node] for node in nodes.tolist()], "classes": classes}
    if view.node:
        shown["chosen"] = int((nodes == center).nonzero())
    tokens = [names[node] for node in nodes.tolist()]
    return Seen([weights[:, nodes][:, :, nodes]], tokens, about, call, shown)
