"""Degrees, adjacency, Laplacians, walks and normalised weights against networkx, PyG and dense torch."""

import networkx
import numpy as np
import pytest
import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from heedful.graphs import Graph


@pytest.fixture
def undirected(seed):
    """A weighted undirected graph with a self-loop and an isolated node, in networkx and here."""
    graph = networkx.gnp_random_graph(9, 0.4, seed=seed)
    graph.add_edge(2, 2)
    graph.add_node(9)
    for edge in graph.edges:
        graph.edges[edge]["weight"] = float(torch.rand(()) + 0.5)
    return graph, Graph.from_networkx(graph)


def test_adjacency_is_networkx_s(undirected):
    theirs, ours = undirected
    np.testing.assert_allclose(ours.adjacency(), networkx.to_numpy_array(theirs), rtol=1e-6)


@pytest.mark.parametrize("kind", ["combinatorial", "symmetric"])
def test_laplacian_is_networkx_s(undirected, kind):
    theirs, ours = undirected
    matrix = {"combinatorial": networkx.laplacian_matrix, "symmetric": networkx.normalized_laplacian_matrix}[
        kind
    ](theirs)
    np.testing.assert_allclose(ours.laplacian(kind), matrix.toarray(), atol=1e-6)


def test_laplacian_of_a_directed_graph(tangled):
    """Literally the formulas, with zero rows for nodes that hear nobody."""
    A = tangled.to_dense()
    d = A.sum(1)
    hears = d > 0
    assert not hears.all()
    inverse = torch.where(hears, 1 / d, 0)
    identity = torch.diag(hears.double())
    expected = {
        "combinatorial": torch.diag(d) - A,
        "symmetric": identity - inverse.sqrt()[:, None] * A * inverse.sqrt(),
        "random_walk": identity - inverse[:, None] * A,
    }
    x = torch.randn(10, 3, dtype=torch.float64)
    for kind, matrix in expected.items():
        torch.testing.assert_close(tangled.laplacian(kind), matrix)
        assert (tangled.laplacian(kind)[~hears] == 0).all()
        torch.testing.assert_close(tangled.laplacian(kind, sparse=True).propagate(x), matrix @ x)


@pytest.mark.parametrize("kind", ["combinatorial", "symmetric", "random_walk"])
def test_laplacian_and_normalized_are_differentiable(tangled, kind):
    weight = tangled.weight.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda w: tangled.with_edges(weight=w).laplacian(kind), weight)
    if kind != "combinatorial":
        name = "row" if kind == "random_walk" else kind
        assert torch.autograd.gradcheck(
            lambda w: tangled.with_edges(weight=w).normalized(name).weight, weight
        )
    isolated = torch.zeros(30, dtype=torch.float64, requires_grad=True)  # every degree is 0
    tangled.with_edges(weight=isolated).laplacian(kind).sum().backward()
    assert isolated.grad.isfinite().all()


def test_normalized_is_gcn_norm(tangled):
    ours = tangled.coalesce().with_self_loops().normalized("symmetric")
    index, weight = gcn_norm(*[tangled.coalesce().to_edge_index(), tangled.coalesce().weight], num_nodes=10)
    theirs = Graph.from_edge_index(index, nodes=10, weight=weight)
    torch.testing.assert_close(ours.to_dense(), theirs.to_dense())


def test_normalized_rows_sum_to_one(tangled):
    sums = tangled.normalized("row").degree(weighted=True)
    torch.testing.assert_close(sums, (tangled.degree() > 0).double())
    heads = tangled.with_edges(weight=torch.rand(3, 30, dtype=torch.float64))
    assert heads.normalized().weight.shape == (3, 30)
    one = tangled.with_edges(weight=heads.weight[1])
    torch.testing.assert_close(heads.normalized().weight[1], one.normalized().weight)
    bipartite = Graph.from_edges([0, 1, 2], [0, 0, 1], sources=3, targets=2)
    assert bipartite.normalized("row").weight.tolist() == [0.5, 0.5, 1]
    with pytest.raises(ValueError, match="bipartite"):
        bipartite.normalized("symmetric")


def test_degrees(tangled):
    A = tangled.with_edges(weight=None).to_dense()
    assert torch.equal(tangled.degree(), A.sum(1).long()) and torch.equal(
        tangled.in_degree(), A.sum(1).long()
    )
    assert torch.equal(tangled.out_degree(), A.sum(0).long())
    torch.testing.assert_close(tangled.degree(weighted=True), tangled.to_dense().sum(1))
    torch.testing.assert_close(tangled.out_degree(weighted=True), tangled.to_dense().sum(0))
    heads = tangled.with_edges(weight=torch.rand(3, 30))
    torch.testing.assert_close(heads.degree(weighted=True), heads.to_dense().sum(-1))


def test_walks_are_exact(seed):
    graph = Graph.from_edge_index(torch.randint(0, 6, (2, 14)), nodes=6)
    A = graph.adjacency().long().numpy().astype(object)
    for length in range(12):
        assert np.array_equal(graph.walks(length).numpy().astype(object), np.linalg.matrix_power(A, length))
    assert torch.equal(graph.walks(0), torch.eye(6, dtype=torch.int64))


def test_walks_up_to_the_end_of_int64():
    doubling = Graph.from_edges([0, 0], [0, 0])
    assert doubling.walks(62).item() == 2**62  # beyond the whole numbers of float64, within int64
    tripling = Graph.from_edges([0] * 3, [0] * 3)
    assert tripling.walks(39).item() == 3**39
    with pytest.raises(OverflowError, match=r"9.22e\+18 walks of length 63"):
        doubling.walks(63)
    with pytest.raises(OverflowError, match="walks of length 2000"):
        doubling.walks(2000)
    # Two tracks, a and b: Σ_k 127 · 128^k = 2^63 − 1 walks end at b_9. As a double that is 2^63, too many.
    source, target = [], []
    for k in range(9):
        source += [k] * 127 + ([k] * 128 if k < 8 else []) + ([8 + k] if k else [])
        target += [9 + k] * 127 + ([k + 1] * 128 if k < 8 else []) + ([9 + k] if k else [])
    assert Graph.from_edges(source, target).walks(9)[17, 0].item() == 2**63 - 1
    # A walk through a layered graph dies out, however many there are on the way.
    layered = Graph.from_edges([0] * 9 + [1] * 9, [1] * 9 + [2] * 9)
    assert layered.walks(3).abs().sum() == 0 and layered.walks(2)[2, 0] == 81


def test_weighted_walks(tangled):
    torch.testing.assert_close(tangled.walks(3), torch.linalg.matrix_power(tangled.to_dense(), 3))
    with pytest.raises(ValueError, match="length must not be negative, got -1"):
        tangled.walks(-1)


def test_unknown_kinds_are_listed(tangled):
    with pytest.raises(ValueError, match="'both'; it takes one of 'symmetric', 'row'"):
        tangled.normalized("both")
    with pytest.raises(ValueError, match="one of 'combinatorial', 'symmetric', 'random_walk'"):
        tangled.laplacian("normal")


def test_nothing_and_nobody():
    for nodes in (0, 3):
        graph = Graph.empty(nodes)
        for kind in ("combinatorial", "symmetric", "random_walk"):
            assert torch.equal(graph.laplacian(kind), torch.zeros(nodes, nodes))
        assert torch.equal(graph.walks(2), torch.zeros(nodes, nodes, dtype=torch.int64))
        assert graph.normalized().edges == 0
