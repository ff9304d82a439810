"""A2: aggregation over a graph, and attention as one."""

from __future__ import annotations

import networkx
import torch

from ..attention import Softmax, Uniform, attend
from ..graphs import Graph
from ..nn import MessagePassing
from .claim import claim
from .documents import A
from .evidence import at_least, at_most, exponent, note, same


def neighbour_sum(graph: Graph, h):
    """Σ_{u ∈ N(v)} h_u, node by node."""
    return torch.stack([h[graph.source[graph.target == v]].sum(0) for v in range(graph.nodes)])


def by_operator(graph: Graph, h):
    """Degrees times the mean that `attend` takes with the similarity that tells nobody apart."""
    blank = h.new_zeros(graph.nodes, 1)
    return graph.degree().to(h.dtype).unsqueeze(1) * attend(
        blank, blank, h, similarity=Uniform(), neighbors=graph
    )


@claim(
    "A2.1",
    A,
    "A layer that sums over neighbours can be written with the neighbourhood N, a message f and the states "
    "h.",
    stated="h_v' = Σ_{u ∈ N(v)} f(h_u)",
)
def sum_aggregation(draw, *, by_sum=neighbour_sum):
    for _ in range(5):
        graph = draw.graph(draw.integer(3, 15), draw.integer(0, 30))
        h = draw.normal(graph.nodes, draw.integer(1, 5))
        W = draw.normal(h.shape[1], draw.integer(1, 4))
        expected = by_sum(graph, h @ W)
        yield same("the operator, times the degree", by_operator(graph, h @ W), expected)
        yield same("graph.aggregate", graph.aggregate(h @ W, "sum"), expected)
        passing = MessagePassing(message=lambda own, other, W=W: other @ W, aggregate="sum")
        yield same("message passing with f(h) = hW", passing(h, graph), expected)
        yield same("A h W, as a matrix", graph.adjacency().double() @ h @ W, expected)


RESULT, PRINTED, AGGREGATE = (0.0, 0.8), (-1.0, 0.8), (-0.8, 0.8)


@claim(
    "A2.2",
    A,
    "The node of the worked example ends up with the state [0, 0.8], by way of the sum [−1, 0.8].",
    stated="aggregate [−1, 0.8], ReLU gives [0, 0.8]",
    corrected="The state is [0, 0.8]; the sum before the ReLU is [−0.8, 0.8]. Cutting at 0 hides the slip.",
)
def worked_example(draw, *, printed=PRINTED, aggregate=AGGREGATE):
    """Neighbours whose states add up to what the example's do; the ReLU of both sums is the same."""
    yield note("instance", "neighbours drawn at random so that they add up as those of the example do")
    star = Graph.from_edges(list(range(1, 6)), [0] * 5, nodes=6)
    for _ in range(3):
        h = draw.normal(6, 2)
        h[5] = torch.tensor(aggregate, dtype=h.dtype) - h[1:5].sum(0)
        total = by_operator(star, h)[0]
        yield same("state of the node", total.relu(), RESULT)
        yield same("sum before the ReLU, as printed", total, printed, role="detail")
        yield same("sum before the ReLU", total, AGGREGATE, role="corrected")
        yield same(
            "ReLU of the sum as printed",
            torch.tensor(printed).relu(),
            RESULT,
            role="corrected",
            tolerance=1e-6,
        )
        graph, x = draw.graph(draw.integer(3, 9), draw.integer(0, 9)), draw.normal(9, 2)[:9]
        x = x[: graph.nodes]
        yield same("random graphs: operator against loop", by_operator(graph, x), neighbour_sum(graph, x))


@claim(
    "A2.3",
    A,
    "The fully connected graph of four tokens has 12 directed edges.",
    stated="12",
    corrected="12 without self-loops; attention listens to itself too, and has 16.",
)
def edges_of_four_tokens(draw, *, complete=Graph.complete):
    yield same("directed edges of 4 tokens, without loops", complete(4, self_loops=False).edges, 12)
    n = draw.integer(2, 30)
    yield same("n(n − 1) for random n", complete(n, self_loops=False).edges, n * (n - 1))
    x = draw.normal(4, 3)
    weights = attend(x, x, torch.eye(4, dtype=x.dtype))
    yield same("pairs that attention weighs", int((weights > 0).sum()), 12, role="detail")
    yield same("with self-loops", complete(4).edges, 16, role="corrected")
    yield same("pairs that attention weighs, loops counted", int((weights > 0).sum()), 16, role="corrected")


def attention_by_graph(q, k, v):
    return attend(q, k, v, neighbors=Graph.complete(q.shape[-2]))


@claim(
    "A2.4",
    A,
    "Single-head attention is a graph net on the complete graph.",
    stated="h_i' = Σ_j α_ij V h_i",
    corrected="h_i' = Σ_j α_ij V h_j: values come from the neighbours. With V h_i the weights would add up "
    "to one and nobody would hear anybody.",
)
def attention_is_a_graph_net(draw, *, over_graph=attention_by_graph, speaker="i"):
    for _ in range(4):
        n, d = draw.integer(2, 12), draw.integer(1, 6)
        h, Q, K, V = draw.normal(n, d), draw.normal(d, d), draw.normal(d, d), draw.normal(d, d)
        projected = [(h @ M).requires_grad_() for M in (Q, K, V)]
        one, two = attend(*projected), over_graph(*projected)
        e = draw.normal(*one.shape)
        yield same("over Everyone against over a complete Graph", two, one)
        for name, a, b in zip(
            "QKV", *(torch.autograd.grad((out * e).sum(), projected) for out in (two, one)), strict=True
        ):
            yield same(f"gradient of {name}", a, b)
        alpha = torch.softmax(projected[0] @ projected[1].T / d**0.5, 1)
        values = projected[2]
        heard = {
            "i": alpha.sum(1, keepdim=True) * values,
            "j": alpha @ values,
        }
        yield same("Σ_j α_ij V h_i, as printed", heard[speaker], one, role="detail")
        yield same("Σ_j α_ij V h_j", heard["j"], one, role="corrected")


def hops(layer, length: int, width: int, draw) -> float:
    """Layers until the first token can reach the last, by which inputs change which outputs."""
    x = draw.normal(length, width)
    reach = torch.func.jacrev(layer)(x).abs().sum((1, 3)) > 0  # (outputs, inputs)
    graph = networkx.from_numpy_array(reach.T.numpy(), create_using=networkx.DiGraph)
    return float(networkx.shortest_path_length(graph, 0, length - 1))


@claim(
    "A2.5",
    A,
    "Long-range dependencies are hard for attention because far states have no direct connection.",
    stated="no direct connection between distant states",
    corrected="Any two tokens are one step apart (a recurrent net: as many as lie between). What grows "
    "with the length n is the number of edges, n², and dilution: a token that stands out by a fixed score "
    "gets a weight that falls like 1/n.",
)
def long_range(draw, *, layer=lambda x: attend(x, x, x)):
    length = draw.integer(8, 16)
    yield at_least("steps between the first and the last token in attention", hops(layer, length, 2, draw), 2)
    yield at_most("steps between them, at most", hops(layer, length, 2, draw), 1, role="corrected")
    if not draw.first:
        return
    sizes = [32, 64, 128, 256, 512, 1024]
    edges = [Graph.complete(n).edges for n in sizes]
    yield exponent("edges", sizes, edges, equals=2, within=0.01, unit="edges", role="corrected")
    path = [networkx.shortest_path_length(networkx.path_graph(n), 0, n - 1) for n in sizes]
    yield exponent(
        "recurrent net", sizes, path, equals=1, within=0.02, unit="steps between the ends", role="corrected"
    )
    largest = []
    for n in sizes:
        keys = torch.zeros(n, 1, dtype=torch.float64)
        keys[draw.integer(0, n)] = 2.0  # stands out by e²
        words = torch.eye(n, dtype=torch.float64)
        query = torch.ones(1, 1, dtype=torch.float64)
        largest.append(float(attend(query, keys, words, similarity=Softmax(scale=1.0)).max()))
    yield exponent(
        "weight of one that stands out",
        sizes,
        largest,
        equals=-1,
        within=0.1,
        unit="largest weight",
        role="corrected",
    )
    yield note(
        "weight of one that stands out by a score of 2, of 32 and of 1024",
        f"{largest[0]:.3f}, {largest[-1]:.4f}",
    )
