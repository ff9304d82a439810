"""What belongs to whole graphs: one row a graph, and where a node is in its graph."""

import pytest
import torch

from heedful import Graph, nn

DOUBLE = torch.float64


@pytest.mark.parametrize("kind", ["sum", "mean", "max", "min", "median", "std"])
def test_readout_is_each_graph_alone(kind, seed):
    graphs = [Graph.complete(3), Graph.empty(1), Graph.empty(0), Graph.from_edges([0], [4], nodes=5)]
    x = torch.randn(2, 9, 4, dtype=DOUBLE)
    out = nn.readout(x, Graph.batch(graphs), kind)
    assert out.shape == (2, 4, 4)
    whole = {
        "sum": lambda h: h.sum(1),
        "mean": lambda h: h.mean(1),
        "max": lambda h: h.amax(1),
        "min": lambda h: h.amin(1),
        "median": lambda h: torch.quantile(h, 0.5, dim=1),
        "std": lambda h: h.std(1, correction=0),
    }[kind]
    for number, part in enumerate(x.split([3, 1, 0, 5], 1)):
        expected = whole(part) if part.shape[1] else torch.zeros(2, 4, dtype=DOUBLE)
        torch.testing.assert_close(out[:, number], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(nn.readout(x[:, :3], graphs[0], kind)[:, 0], whole(x[:, :3]))


def test_readout_gets_gradients(seed):
    graph = Graph.batch([Graph.complete(3), Graph.empty(2)])
    x = torch.randn(5, 2, dtype=DOUBLE, requires_grad=True)
    for kind in ("sum", "mean", "max", "median", "std"):
        assert torch.autograd.gradcheck(lambda x, kind=kind: nn.readout(x, graph, kind), (x,))


def random_graph(nodes, edges):
    return Graph.from_edges(torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,)), nodes=nodes)


def rayleigh(graph, vectors):
    """uᵀ L u / uᵀ u, and how far L u is from it."""
    whole = graph.without_self_loops().undirected().coalesce()
    matrix = whole.with_edges(weight=torch.ones(whole.edges, dtype=DOUBLE)).laplacian("symmetric")
    u = vectors.double()
    values = (u * (matrix @ u)).sum(0) / u.square().sum(0)
    return values, (matrix @ u - values * u).norm(dim=0), torch.linalg.eigvalsh(matrix)


def test_positions_are_eigenvectors(seed):
    graph = random_graph(30, 60)
    places = nn.laplacian_positions(graph, 5)
    assert places.shape == (30, 5) and places.dtype == torch.float32
    values, residual, spectrum = rayleigh(graph, places)
    assert residual.max() < 1e-5
    torch.testing.assert_close(values, spectrum[1:6], rtol=1e-5, atol=1e-6)
    assert (places.pow(3).sum(0) > -1e-5).all()
    assert nn.laplacian_positions(graph, 5) is places


def test_positions_by_lanczos(seed, monkeypatch):
    from heedful.nn.graph import positions

    graph = random_graph(200, 1200)
    dense = nn.laplacian_positions(graph, 4)
    monkeypatch.setattr(positions, "DENSE", 50)
    again = Graph.from_edges(graph.source, graph.target, nodes=200)
    places = nn.laplacian_positions(again, 4)
    values, residual, spectrum = rayleigh(again, places)
    assert residual.max() < 1e-4
    torch.testing.assert_close(values, rayleigh(graph, dense)[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(values, spectrum[1:5], rtol=1e-5, atol=1e-5)


def test_positions_of_a_batch_and_of_tiny_graphs(seed):
    graphs = [random_graph(20, 50), Graph.complete(2), Graph.empty(1), random_graph(15, 40)]
    places = nn.laplacian_positions(Graph.batch(graphs), 3)
    parts = torch.cat([nn.laplacian_positions(graph, 3) for graph in graphs])
    torch.testing.assert_close(places, parts)
    assert (places[20:22, 1:] == 0).all() and (places[22] == 0).all()
    with pytest.raises(ValueError, match="count=0"):
        nn.laplacian_positions(graphs[0], 0)
