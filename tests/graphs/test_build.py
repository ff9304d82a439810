"""Building graphs, taking them apart into other libraries' terms, and what is said about wrong arguments."""

import subprocess
import sys

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from heedful.graphs import Graph
from heedful.graphs.structure import group, index_dtype


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_slots_hold_every_edge_in_order(data):
    targets, sources = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    ends = st.tuples(st.integers(0, sources - 1), st.integers(0, targets - 1))
    pairs = data.draw(st.lists(ends, max_size=20))
    source, target = [s for s, _ in pairs], [t for _, t in pairs]
    graph = Graph.from_edges(source, target, sources=sources, targets=targets)

    slots = [
        (i, int(graph.col[s]), int(graph.edge[s])) for i in range(targets) for s in _slots(graph.rowptr, i)
    ]
    assert slots == sorted((t, s, e) for e, (s, t) in enumerate(pairs))
    slots = [
        (j, int(graph.row[s]), int(graph.edge_transposed[s]))
        for j in range(sources)
        for s in _slots(graph.colptr, j)
    ]
    assert slots == sorted((s, t, e) for e, (s, t) in enumerate(pairs))
    assert graph.source.tolist() == source and graph.target.tolist() == target
    assert graph.rowptr.dtype == graph.col.dtype == graph.edge.dtype == graph.row.dtype == torch.int32


def _slots(pointers, i):
    return range(int(pointers[i]), int(pointers[i + 1]))


def test_index_type_grows_only_when_needed():
    assert index_dtype(2**31 - 1, 5) == torch.int32
    assert index_dtype(5, 2**31) == torch.int64
    # So many columns that row · columns + column would not fit in int64.
    rowptr, col, edge = group(torch.tensor([1, 0, 1]), torch.tensor([2**60, 3, 7]), 2, 2**62)
    assert rowptr.tolist() == [0, 1, 3] and col.tolist() == [3, 7, 2**60] and edge.tolist() == [1, 2, 0]
    assert col.dtype == torch.int64


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor, lambda v: torch.tensor(v, dtype=torch.int32)])
def test_edges_come_as_lists_arrays_and_tensors(kind):
    graph = Graph.from_edges(kind([0, 2]), kind([1, 1]))
    assert (graph.nodes, graph.edges) == (3, 2)
    assert graph.to_edge_index().tolist() == [[0, 2], [1, 1]]


def test_repr_and_counts():
    graph = Graph.from_edges([0, 1], [1, 0], nodes=3, weight=torch.ones(2))
    assert repr(graph) == "Graph(3 nodes, 2 edges, weight)"
    assert repr(Graph.from_edges([0], [3], sources=1, targets=4)) == "Graph(4 targets, 1 sources, 1 edges)"
    assert graph.square and graph.nodes == graph.targets == graph.sources == 3
    assert {graph: 1}[graph] == 1 and graph != Graph.from_edges([0, 1], [1, 0], nodes=3, weight=torch.ones(2))
    with pytest.raises(ValueError, match="bipartite"):
        _ = Graph.from_edges([0], [0], sources=2, targets=1).nodes


def test_empty_graphs():
    for graph in (Graph.empty(0), Graph.empty(4), Graph.from_edges([], []), Graph.complete(0)):
        assert graph.edges == 0 and graph.to_edge_index().shape == (2, 0)
        assert graph.to_dense().shape == (graph.nodes, graph.nodes)
        assert graph.to_scipy().nnz == 0 and len(graph.to_networkx()) == graph.nodes
        assert graph.to_torch_sparse().to_dense().shape == (graph.nodes, graph.nodes)
        assert graph.reverse().undirected().coalesce().filter(torch.ones(0, dtype=torch.bool)).edges == 0
        assert graph.with_self_loops().edges == graph.nodes


def test_edge_index_is_pyg_s(seed):
    edge_index = torch.randint(0, 5, (2, 12))
    graph = Graph.from_edge_index(edge_index, nodes=5)
    assert torch.equal(graph.to_edge_index(), edge_index)
    assert Graph.from_edge_index(edge_index.int(), nodes=5).to_edge_index().dtype == torch.int64
    in_degree = torch.bincount(Data(edge_index=edge_index).edge_index[1], minlength=5)
    assert torch.equal(graph.in_degree(), in_degree)
    assert Graph.from_edge_index(edge_index, nodes=(7, 5)).sources == 7
    with pytest.raises(ValueError, match=r"shape \(3, 2\)"):
        Graph.from_edge_index(torch.zeros(3, 2, dtype=torch.long))


def test_dense_goes_both_ways_with_gradient(seed):
    matrix = torch.randn(4, 6) * (torch.rand(4, 6) < 0.5)
    matrix.requires_grad_()
    graph = Graph.from_dense(matrix)
    assert (graph.targets, graph.sources) == (4, 6)
    assert torch.equal(graph.to_dense(), matrix)
    graph.weight.square().sum().backward()
    assert torch.equal(matrix.grad, 2 * matrix.detach())
    boolean = Graph.from_dense(matrix.detach() != 0)
    assert boolean.weight is None and torch.equal(boolean.to_dense(), (matrix != 0).float())


def test_scipy_keeps_duplicates_and_orientation():
    matrix = scipy.sparse.coo_array(([1.0, 2.0, 4.0], ([0, 0, 1], [2, 2, 0])), shape=(2, 3))
    graph = Graph.from_scipy(matrix)
    assert graph.edges == 3 and graph.target.tolist() == [0, 0, 1] and graph.weight.tolist() == [1, 2, 4]
    assert np.array_equal(graph.to_scipy().toarray(), matrix.toarray())
    assert graph.to_scipy().nnz == 3
    assert Graph.from_scipy(scipy.sparse.csr_matrix([[0, 3]])).weight.dtype == torch.get_default_dtype()


def test_torch_sparse_adds_duplicates_and_is_differentiable():
    weight = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    graph = Graph.from_edges([2, 2, 0], [0, 0, 1], sources=3, targets=2, weight=weight)
    matrix = graph.to_torch_sparse()
    assert matrix.layout == torch.sparse_csr and matrix.to_dense().tolist() == [[0, 0, 3], [4, 0, 0]]
    (matrix @ torch.eye(3)).sum().backward()
    assert weight.grad.tolist() == [1, 1, 1]


def test_networkx_both_ways():
    undirected = networkx.Graph([("a", "b"), ("b", "b")])
    graph = Graph.from_networkx(undirected)
    assert graph.to_edge_index().tolist() == [[0, 1, 1], [1, 1, 0]] and graph.weight is None
    directed = networkx.DiGraph()
    directed.add_weighted_edges_from([(0, 1, 2.0)])
    directed.add_edge(1, 2)
    graph = Graph.from_networkx(directed)
    assert graph.weight.tolist() == [2, 1] and graph.target.tolist() == [1, 2]
    assert Graph.from_networkx(directed, weight=None).weight is None
    back = graph.to_networkx()
    assert back.edges[0, 1]["weight"] == 2 and not back.is_multigraph()
    twice = Graph.from_edges([0, 0], [1, 1]).to_networkx()
    assert twice.number_of_edges(0, 1) == 2
    assert Graph.from_networkx(twice).edges == 2


def test_attributes_are_checked_shared_and_dropped():
    graph = Graph.complete(2)
    full = graph.with_edges(
        weight=torch.ones(3, 4), bias=torch.zeros(4), key=torch.zeros(4, 5), value=torch.ones(2, 3, 4, 5)
    )
    assert repr(full) == "Graph(2 nodes, 4 edges, weight, bias, key, value)"
    assert full.rowptr is graph.rowptr and full.row is graph.row  # the transpose is shared as well
    assert list(full.with_edges(weight=None, key=None).attributes) == ["bias", "value"]
    for name, wrong in [("weight", torch.ones(3)), ("key", torch.ones(4)), ("value", torch.ones(5, 4))]:
        with pytest.raises(ValueError, match=rf"with_edges\(\): {name} has shape .* 4 edges"):
            graph.with_edges(**{name: wrong})
    with pytest.raises(TypeError, match=r"bias must be floating point, got torch.int64"):
        graph.with_edges(bias=torch.ones(4, dtype=torch.int64))
    with pytest.raises(ValueError, match="weight is on meta, the graph on cpu"):
        graph.with_edges(weight=torch.ones(4, device="meta"))


def test_to_device_moves_everything():
    graph = Graph.complete(2).with_edges(weight=torch.ones(4))
    _ = graph.row
    moved = graph.to("meta")
    assert {moved.device.type, moved.row.device.type, moved.weight.device.type} == {"meta"}
    assert graph.to("cpu").source.tolist() == graph.source.tolist()


def test_to_a_dtype_converts_what_edges_carry():
    graph = Graph.from_edges([0, 2], [1, 1], weight=[0.5, 2.0]).with_edges(key=torch.ones(2, 3))
    for like in ((torch.float16,), ("cpu", torch.float16), (None, torch.float16), (torch.ones(1).half(),)):
        half = graph.to(*like)
        assert {tensor.dtype for tensor in half.attributes.values()} == {torch.float16}
        assert half.structure.forward.col.dtype == graph.col.dtype == torch.int32
        assert torch.equal(half.to_edge_index(), graph.to_edge_index())
    with pytest.raises(TypeError, match=r"dtype is torch.int64; edges carry floating point"):
        graph.to(torch.int64)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"source": [0, 5], "target": [1, 0], "nodes": 3},
            ValueError,
            r"source\[1\] is 5, but with 3 nodes .* 0 to 2",
        ),
        ({"source": [0, 1], "target": [-1, 0], "nodes": 3}, ValueError, r"target\[0\] is -1, .* 0 to 2"),
        ({"source": [0], "target": [-1]}, ValueError, r"target\[0\] is -1"),
        (
            {"source": [0], "target": [4], "sources": 9, "targets": 4},
            ValueError,
            r"target\[0\] is 4, but with 4 targets",
        ),
        ({"source": [0], "target": [0], "nodes": 0}, ValueError, "none at all"),
        ({"source": [0.0], "target": [0]}, TypeError, "source must hold whole numbers .* torch.float32"),
        ({"source": [True], "target": [0]}, TypeError, "source must hold whole numbers"),
        ({"source": [0, 1], "target": [0]}, ValueError, "source has 2 entries, target 1"),
        ({"source": [[0]], "target": [0]}, ValueError, r"one-dimensional, got shape \(1, 1\)"),
        ({"source": [0], "target": [0], "nodes": -1}, ValueError, "nodes must not be negative, got -1"),
        ({"source": [0], "target": [0], "nodes": 2.0}, TypeError, "nodes must be a whole number, got 2.0"),
        ({"source": [0], "target": [0], "nodes": 1, "sources": 1}, ValueError, "not both"),
        (
            {"source": [0], "target": [0], "weight": [1.0, 2.0]},
            ValueError,
            r"weight has shape \(2,\)",
        ),
        (
            {"source": [0], "target": torch.zeros(1, dtype=int, device="meta")},
            ValueError,
            "source is on cpu, target on meta",
        ),
    ],
)
def test_wrong_edges_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        Graph.from_edges(**arguments)


def weighing(weight):
    graph = networkx.Graph()
    graph.add_edge("x", "y", weight=weight)
    return graph


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Graph.from_edges(None, [0]), r"from_edges\(\): source must hold whole numbers .*, got None"),
        (lambda: Graph.from_edges([0], "a"), "target must hold whole numbers .*, got 'a'"),
        (lambda: Graph.from_edges([0], [0], weight="a"), "weight must hold numbers, got 'a'"),
        (lambda: Graph.from_edge_index(None), "edge_index must hold whole numbers, got None"),
        (lambda: Graph.from_dense(None), "matrix must hold numbers, got None"),
        (lambda: Graph.from_dense(1j * torch.eye(2)), "matrix is torch.complex64; weights are real"),
        (lambda: Graph.from_scipy(np.eye(3)), r"one of scipy.sparse, got ndarray; Graph.from_dense\(\)"),
        (lambda: Graph.from_scipy(scipy.sparse.csr_array(1j * np.eye(2))), "matrix is torch.complex128"),
        (lambda: Graph.from_networkx(3), "graph must be one of networkx, got int"),
        (lambda: Graph.from_networkx(weighing("a")), r"edge \('x', 'y'\) has weight 'a'; it takes a number"),
        (lambda: Graph.from_networkx(weighing(None)), r"edge \('x', 'y'\) has weight None"),
        (lambda: Graph.batch(Graph.empty(2)), r"graphs is Graph\(2 nodes, 0 edges\); it takes a list"),
        (lambda: Graph.batch([Graph.empty(2), None]), r"graphs\[1\] is None; it takes graphs"),
    ],
)
def test_what_is_no_graph_is_named(make, message):
    with pytest.raises(TypeError, match=message) as told:
        make()
    assert "\n" not in str(told.value)


def test_import_stays_light():
    """Numba, scipy and networkx load when first used, or because torch itself loads them."""
    code = "import sys; import {}; print(*[m for m in ('numba', 'scipy', 'networkx') if m in sys.modules])"
    loaded = []
    for module in ("torch", "heedful.graphs"):
        command = [sys.executable, "-c", code.format(module)]
        loaded.append(set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()))
    assert loaded[1] <= loaded[0] and "numba" not in loaded[1]
