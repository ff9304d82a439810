"""C3: graphs, graph convolutions, and what they can and cannot do."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention import Additive, attend
from ..graphs import Graph
from ..nn import GATConv, GCNConv, GraphConv, MessagePassing
from ..probes import dirichlet_energy
from .claim import claim
from .costs import flops, plain_attention, triple
from .documents import C
from .evidence import at_least, at_most, curve, exponent, note, same
from .studies import judged

FIVE = [(0, 1), (0, 2), (0, 4), (1, 2), (2, 3)]
SIX = [(0, 1), (1, 2), (1, 4), (2, 3), (3, 4), (3, 5), (4, 5)]


def undirected(pairs: list[tuple[int, int]]) -> Graph:
    source, target = zip(*pairs, *(pair[::-1] for pair in pairs), strict=True)
    return Graph.from_edges(source, target)


def count(graph: Graph, length: int, *, repeat: bool) -> Tensor:
    """Walks of that many steps between any two nodes, one by one; without `repeat`, paths: no node twice."""
    there = graph.adjacency() > 0
    found = torch.zeros(graph.nodes, graph.nodes)
    for nodes in itertools.product(range(graph.nodes), repeat=length + 1):
        if all(there[b, a] for a, b in itertools.pairwise(nodes)) and (
            repeat or len(set(nodes)) == length + 1
        ):
            found[nodes[-1], nodes[0]] += 1
    return found


@claim(
    "C3.1",
    C,
    "The entries of A² count the paths of length two between the nodes of the graph 0-1, 0-2, 0-4, 1-2, 2-3.",
    stated="(A²)_ij = number of paths of length 2",
    corrected="They count walks. A path visits no node twice; the diagonal of A², the degrees, is walks "
    "there and back.",
)
def two_steps(draw, *, power=lambda A: A @ A, what="paths"):
    for graph in (undirected(FIVE), draw.graph(draw.integer(3, 7), draw.integer(0, 6))):
        A = graph.adjacency().double()
        walks = count(graph, 2, repeat=True)
        yield same("A² against heedful's walks", power(A), graph.walks(2).double())
        yield same("A² against walks of two steps, counted", power(A), walks)
        counted = walks if what == "walks" else count(graph, 2, repeat=False)
        yield same("A² against paths, as stated", power(A), counted, role="detail")
        yield same("the diagonal of A² against degrees", power(A).diag(), graph.degree(), role="corrected")
        yield same("A² against walks", power(A), walks, role="corrected")


@claim(
    "C3.2",
    C,
    "Of the graph 0-1, 1-2, 1-4, 2-3, 3-4, 3-5, 4-5 the Laplacian is D − A, and nodes 2, 3 and 5 (from 1) "
    "change most.",
    stated="nodes 2, 3 and 5",
    corrected="The matrix is D − A; the nodes of degree 3, which it weighs most, are 2, 4 and 5 (counted "
    "from 1).",
)
def laplacian(draw, *, matrix=lambda graph: graph.laplacian().double(), most=(2, 3, 5)):
    graph = undirected(SIX)
    L = matrix(graph)
    A = graph.adjacency().double()
    yield same("L against D − A", L, A.sum(1).diag() - A)
    largest = tuple(1 + i for i in range(6) if L[i, i] == L.diag().max())
    yield same(
        "nodes that L weighs most, as stated",
        list(map(float, most)),
        list(map(float, largest)),
        role="detail",
    )
    yield same(
        "nodes that L weighs most: 2, 4 and 5", [2.0, 4.0, 5.0], list(map(float, largest)), role="corrected"
    )
    other = draw.graph(draw.integer(3, 12), draw.integer(0, 20))
    x = draw.normal(other.nodes, 2)
    gaps = 0.5 * (x[other.target] - x[other.source]).square().sum()
    yield same("random graphs: tr(xᵀLx) against Σ (x_i − x_j)²", (x.T @ matrix(other) @ x).trace(), gaps)


def energies(graph: Graph, x: Tensor, own: bool, depth: int = 24) -> list[float]:
    """Dirichlet energy of unit-norm states after each of many random layers."""
    found = []
    with torch.no_grad():
        for _ in range(depth):
            layer = GraphConv(x.shape[1], x.shape[1], own=own, bias=False).double()
            x = layer(x, graph).relu()
            x = x / x.norm().clamp_min(1e-300)
            found.append(float(dirichlet_energy(graph, x, normalized=False)))
    return found


def _typical(curves: list[list[float]]) -> list[float]:
    """The median of several curves, place by place."""
    return torch.tensor(curves, dtype=torch.float64).median(0).values.tolist()


@claim(
    "C3.3",
    C,
    "The self term keeps a node's own state and resists over-smoothing.",
    stated="it resists",
)
def self_term(draw, *, energy=energies):
    graph = draw.graph(60, 120)
    x = draw.normal(60, 16)
    # One random stack says little, for a ReLU may silence most of it: the typical one of nine does.
    found = {own: _typical([energy(graph, x, own) for _ in range(9)]) for own in (True, False)}
    yield at_least(
        "energy after 16 layers, median of nine random nets: with the self term over without",
        found[True][15] / max(found[False][15], 1e-300),
        5,
    )
    yield note("energy after 16 layers over after one, with it", found[True][15] / found[True][0])
    yield note("the same without", found[False][15] / found[False][0])
    for own, name in ((True, "with the self term"), (False, "without")):
        yield curve(
            "how much neighbours differ",
            name,
            range(1, 25),
            [max(e, 1e-18) for e in found[own]],
            across="layers",
            up="Dirichlet energy",
            log="y",
        )


@claim(
    "C3.4",
    C,
    "Graph convolution is message passing with messages h_u/|N(v)|; as a matrix it is σ(D⁻¹AHW + HB).",
    stated="σ(D⁻¹AHW + HB)",
)
def as_messages(draw, *, layer=GraphConv):
    for _ in range(4):
        graph = draw.graph(draw.integer(3, 15), draw.integer(0, 30))
        inputs, outputs = draw.integer(1, 6), draw.integer(1, 6)
        conv = layer(inputs, outputs, bias=False).double()
        H = draw.normal(graph.nodes, inputs)
        A = graph.adjacency().double()
        matrix = torch.sigmoid(A / A.sum(1, keepdim=True) @ H @ conv.weight + H @ conv.own)
        yield same("the layer against the matrix form", torch.sigmoid(conv(H, graph)), matrix)
        share = graph.with_edges(weight=1 / graph.degree().double()[graph.target])
        passing = MessagePassing(
            message=lambda own, other, W=conv.weight: other @ W,
            update=lambda own, heard, B=conv.own: torch.sigmoid(heard + own @ B),
        )
        yield same("messages h_u/|N(v)| against the matrix form", passing(H, share), matrix)


@claim(
    "C3.5",
    C,
    "Median aggregation has no matrix form.",
    stated="it has none",
)
def median(draw, *, kind="median"):
    """A matrix form M(x + y) is Mx + My for every x and y; what is not additive has none."""
    graph = draw.graph(draw.integer(8, 20), 40)
    x, y = draw.normal(graph.nodes, 4), draw.normal(graph.nodes, 4)
    gap = {
        each: float(
            (graph.aggregate(x + y, each) - graph.aggregate(x, each) - graph.aggregate(y, each)).abs().max()
        )
        for each in (kind, "sum", "mean")
    }
    yield at_least("median: f(x + y) − f(x) − f(y), largest entry", gap[kind], 1e-3)
    for each in ("sum", "mean"):
        yield at_most(f"{each}: the same", gap[each], 1e-12)
    middle = torch.stack(
        [
            torch.quantile(x[graph.source[graph.target == v]], 0.5, dim=0, interpolation="midpoint")
            for v in range(graph.nodes)
        ]
    )
    lower = torch.stack([x[graph.source[graph.target == v]].median(0).values for v in range(graph.nodes)])
    found = graph.aggregate(x, "median")
    gap_to = min(float((found - each).abs().max()) for each in (middle, lower))
    yield at_most("graph.aggregate against a loop", gap_to, 1e-12)


class _Noisy:
    """Nodes whose three friends know the class and whose other neighbours, who can be told apart, lie."""

    def __init__(self, draw, noise: int, count: int = 150):
        labels = draw.integers(2, count)
        signs = (2 * labels - 1).double()
        total = count * (1 + 3 + noise)
        owner = torch.arange(count).repeat_interleave(3 + noise)
        honest = (torch.arange(3 + noise) < 3).repeat(count)
        x = torch.zeros(total, 3, dtype=torch.float64)
        x[count:, 0] = torch.where(
            honest, signs[owner], 2.0 * (2 * draw.integers(2, len(owner)) - 1)
        ) + 0.5 * draw.normal(len(owner))
        x[count:, 1] = (~honest).double()  # the mark of a liar
        x[:, 2] = 1.0
        self.graph = Graph.from_edges(torch.arange(count, total), owner, nodes=total)
        self.x, self.labels, self.count = x.float(), labels, count


def trained_accuracy(layer: str, draw, noise: int, epochs: int = 60) -> float:
    """One layer of the kind named and a linear one, trained among so many liars; accuracy on new nodes."""
    torch.manual_seed(draw.seed)
    made: nn.Module = GATConv(3, 4, heads=4) if layer == "gat" else GCNConv(3, 16, normalize="row")
    head = nn.Linear(16, 2)
    sets = _Noisy(draw, noise), _Noisy(draw, noise)
    optimizer = torch.optim.Adam([*made.parameters(), *head.parameters()], lr=0.03)
    for _ in range(epochs):
        optimizer.zero_grad()
        out = head(F.elu(made(sets[0].x, sets[0].graph)))[: sets[0].count]
        F.cross_entropy(out, sets[0].labels).backward()
        optimizer.step()
    with torch.no_grad():
        out = head(F.elu(made(sets[1].x, sets[1].graph)))[: sets[1].count]
    return 100 * float((out.argmax(1) == sets[1].labels).float().mean())


@claim(
    "C3.6",
    C,
    "GAT can learn to ignore noisy neighbours, GCN cannot.",
    stated="GAT yes, GCN no",
    corrected="It can where something marks them: then GAT stays right and a mean does not. Neighbours whose "
    "words are drawn at random bear no mark a few labels could teach, and GAT gives them the weight that a "
    "mean does.",
)
def noisy_neighbours(draw, *, accuracy=trained_accuracy, results=None):
    amounts = (0, 4, 12)
    found = {layer: [accuracy(layer, draw, noise) for noise in amounts] for layer in ("gat", "gcn")}
    yield note(
        "judged", "a direct measurement: three honest neighbours, up to twelve that lie and can be told apart"
    )
    yield at_least("GAT with twelve liars, %", found["gat"][2], 92)
    yield at_most("GCN with twelve liars, %", found["gcn"][2], 85)
    yield at_least("GCN without liars, %", found["gcn"][0], 90)
    if draw.first:
        study = judged("noise", draw.runs) if results is None else results
        added = max(study.values("added"))
        heard = {model: study.of(model=model, added=added)()("heard") for model in ("gat", "mean")}
        gain = f"on a citation graph, {added} added a paper: weight on real ones, GAT less mean, points"
        yield note("judged too", study.about)
        yield at_least(gain, heard["gat"] - heard["mean"], 10, role="detail")
        yield at_most(f"{gain}, at most", heard["gat"] - heard["mean"], 10, role="corrected")
    for layer in ("gat", "gcn"):
        yield curve(
            "accuracy as noisy neighbours are added",
            layer.upper(),
            amounts,
            found[layer],
            across="noisy neighbours a node",
            up="accuracy, %",
        )


def edge_cost(nodes: int, edges: int) -> float:
    graph = Graph.from_edges(torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,)), nodes=nodes)
    s, t, x = torch.randn(nodes, 1), torch.randn(nodes, 1), torch.randn(nodes, 8)
    return flops(lambda: attend(s, t, x, similarity=Additive(), neighbors=graph, strategy="sparse"))


def pair_cost(nodes: int) -> float:
    q, k, v = triple(nodes, 8)
    return flops(lambda: plain_attention(q, k, v))


@claim(
    "C3.7",
    C,
    "GAT costs as many operations as there are edges, a transformer n².",
    stated="O(|E|) against O(n²)",
)
def gat_costs(draw, *, edges=edge_cost, pairs=pair_cost):
    if not draw.first:
        return
    counts = (2000, 4000, 8000, 16000, 32000)
    yield exponent(
        "GAT, in edges (1000 nodes)",
        counts,
        [edges(1000, c) for c in counts],
        equals=1,
        within=0.05,
        unit="FLOPs",
        size="edges",
    )
    nodes = (128, 256, 512, 1024, 2048)
    yield exponent(
        "GAT, in nodes at ten edges a node",
        nodes,
        [edges(n, 10 * n) for n in nodes],
        equals=1,
        within=0.05,
        unit="FLOPs",
        size="nodes",
    )
    yield exponent(
        "transformer, in nodes",
        nodes,
        [pairs(n) for n in nodes],
        equals=2,
        within=0.05,
        unit="FLOPs",
        size="nodes",
    )
