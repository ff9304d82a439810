"""The drop-ins give what PyG's layers give: outputs, gradients, attention weights, for any options."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch_geometric.nn

import heedful.interop.pyg
from heedful import Graph
from heedful.interop.pyg import grouped

from .pyg_cases import LAYERS, Draw, assert_same, pair, random_edges


@pytest.fixture(autouse=True)
def _seeded(seed):
    """All of these are random."""


def in_dtype(thing, dtype):
    if isinstance(thing, tuple):
        return tuple(in_dtype(t, dtype) for t in thing)
    return thing.to(dtype) if isinstance(thing, torch.Tensor) and thing.is_floating_point() else thing


@pytest.mark.parametrize("number", range(60))
@pytest.mark.parametrize("name", LAYERS)
def test_any_options(name, number, seed, monkeypatch):
    if number % 2:  # kernels, for however few edges
        monkeypatch.setattr(grouped, "MANY", 0)
        monkeypatch.setattr(grouped, "FEW", 0)
    args, options, inputs, call = Draw(f"{seed} {name} {number}").layer(name)
    assert_same(*pair(name, *args, **options), *inputs, **call)


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("name", LAYERS)
def test_single_precision(name, number, seed):
    args, options, inputs, call = Draw(f"{seed} {name} {number}").layer(name)
    if name == "SAGEConv":
        options.pop("normalize")  # to unit length: the shorter the vector, the larger the error
    ours, theirs = pair(name, *args, **options, dtype=torch.float32)
    assert_same(ours, theirs, *(in_dtype(one, torch.float32) for one in inputs), **call)


@pytest.mark.parametrize("name", LAYERS)
def test_signatures(name):
    theirs, ours = getattr(torch_geometric.nn, name), getattr(heedful.interop.pyg, name)
    for function in ("__init__", "forward"):
        mine, wanted = (inspect.signature(getattr(kind, function)).parameters for kind in (ours, theirs))
        assert list(mine) == list(wanted)
        assert [p.default for p in mine.values()] == [p.default for p in wanted.values()]
        assert [p.kind for p in mine.values()] == [p.kind for p in wanted.values()]


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("name", LAYERS)
def test_same_seed_same_layer(name, number, seed):
    """Names, shapes and order of the parameters, their initial values, the repr."""
    args, options, _, _ = Draw(f"{seed} {name} {number}").layer(name)
    made = []
    for library in (torch_geometric.nn, heedful.interop.pyg):
        torch.manual_seed(seed)
        made.append(getattr(library, name)(*args, **options))
    theirs, ours = (layer.state_dict() for layer in made)
    assert list(ours) == list(theirs)
    for key, value in theirs.items():
        torch.testing.assert_close(ours[key], value, rtol=1e-6, atol=0)
    assert repr(made[0]) == repr(made[1])
    for layer in made:
        torch.manual_seed(seed + 1)
        layer.reset_parameters()
    for key, value in made[0].state_dict().items():
        torch.testing.assert_close(made[1].state_dict()[key], value, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", LAYERS)
def test_realistic_size(name):
    """Large enough for the kernels made for a shape, and for several threads."""
    x, edges = torch.randn(500, 16), random_edges(500, 500, 5000)
    options = {} if name in ("GCNConv", "SAGEConv") else {"heads": 8}
    ours, theirs = pair(name, 16, 8, **options, dtype=torch.float32)
    torch.testing.assert_close(ours(x, edges), theirs(x, edges), rtol=1e-5, atol=1e-5)
    assert_same(*pair(name, 16, 8, **options), x.double(), edges)


@pytest.mark.parametrize("kind", ["std", ["std", "mean"]])
def test_std(kind):
    """Above PyG's floor of 1e-5 for the variance; below, both say 0."""
    edges = torch.cat([random_edges(12, 12, 60), torch.tensor([[0], [0]])], 1)
    x = torch.randn(12, 3, dtype=torch.float64)
    ours, theirs = pair("SAGEConv", 3, 4, aggr=kind)
    assert_same(ours, theirs, x, edges)
    still = torch.ones(12, 3, dtype=torch.float64)
    assert_same(ours, theirs, still, edges)


def test_largest_of_equals():
    """Where several neighbours are the largest, the output is PyG's; the gradient goes to one of them."""
    x = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    edges = torch.tensor([[0, 1, 2], [0, 0, 0]])
    ours, theirs = pair("SAGEConv", 2, 2, aggr="max", root_weight=False)
    torch.testing.assert_close(ours(x, edges), theirs(x, edges))
    mine, wanted = (torch.autograd.grad(layer(x, edges)[0].sum(), x)[0] for layer in (ours, theirs))
    torch.testing.assert_close(mine.sum(0), wanted.sum(0))


def test_repeated_loops():
    """Of several loops at a node PyG keeps the last; so do we, and the gradient reaches that one only."""
    edges = torch.tensor([[0, 0, 1, 0, 2], [0, 0, 2, 0, 1]])
    weight = torch.rand(5, dtype=torch.float64) + 0.1
    ours, theirs = pair("GCNConv", 3, 2)
    x = torch.randn(3, 3, dtype=torch.float64)
    torch.testing.assert_close(ours(x, edges, weight), theirs(x, edges, weight))
    weight.requires_grad_()
    assert torch.autograd.gradcheck(lambda w: ours(x, edges, w), weight)


def test_degree_zero():
    """Without loops a node may have degree 0: PyG's gradient is NaN there, ours 0."""
    edges, x = torch.tensor([[0, 1], [1, 1]]), torch.randn(3, 3, dtype=torch.float64)
    ours, theirs = pair("GCNConv", 3, 2, add_self_loops=False)
    weight = torch.rand(2, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(ours(x, edges, weight), theirs(x, edges, weight))
    grad = torch.autograd.grad(ours(x, edges, weight).sum(), weight)[0]
    assert torch.isfinite(grad).all()


def test_silent_listeners():
    """x = (x, None): scores of speakers only, as many listeners as `size` says."""
    x, edges = torch.randn(5, 4, dtype=torch.float64), torch.tensor([[0, 4, 3], [1, 2, 1]])
    for loops in (False, True):
        layers = pair("GATConv", (4, 6), 2, heads=2, add_self_loops=loops, residual=True)
        assert_same(*layers, (x, None), edges)
        assert_same(*layers, (x, None), edges, size=(5, 3))
    layers = pair("SAGEConv", (4, 6), 2)
    assert_same(*layers, (x, None), edges)
    assert_same(*layers, (x, None), edges, size=(5, 3))


def test_one_matrix_for_both_sides():
    """in_channels a number, x a pair; and in_channels a pair, x one tensor."""
    x, y, edges = torch.randn(5, 4).double(), torch.randn(3, 4).double(), torch.tensor([[0, 4, 3], [1, 2, 1]])
    square = random_edges(5, 5, 9)
    for name in ("GATConv", "GATv2Conv", "SAGEConv", "TransformerConv"):
        assert_same(*pair(name, 4, 2), (x, y), edges)
        assert_same(*pair(name, (4, 4), 2), x, square)


def test_edge_features_of_one_number():
    x, edges, feature = torch.randn(5, 4).double(), random_edges(5, 5, 9), torch.randn(9).double()
    for name in ("GATConv", "GATv2Conv"):
        assert_same(*pair(name, 4, 2, edge_dim=1), x, edges, feature)


def test_cached_keeps_the_first_graph():
    x, first, second = torch.randn(5, 4).double(), random_edges(5, 5, 9), random_edges(5, 5, 20)
    ours, theirs = pair("GCNConv", 4, 2, cached=True)
    for edges in (first, second, first):
        torch.testing.assert_close(ours(x, edges), theirs(x, edges))
    ours.reset_parameters(), theirs.reset_parameters()
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(x, second), theirs(x, second))


@pytest.mark.parametrize("name", LAYERS)
def test_any_form_of_edges(name):
    """int32, not contiguous, a view, a PyG EdgeIndex, a heedful Graph: all the same."""
    x, edges = torch.randn(6, 4).double(), random_edges(6, 6, 15)
    ours, theirs = pair(name, 4, 2)
    expected = theirs(x, edges)
    wide = torch.randint(6, (4, 30))
    wide[::2, ::2] = edges
    forms = [
        edges.int(),
        edges.to(torch.int16),
        edges.T.contiguous().T,
        wide[::2, ::2],
        torch_geometric.EdgeIndex(edges, sparse_size=(6, 6)),
        Graph.from_edge_index(edges, nodes=6),
    ]
    for form in forms:
        for _ in range(2):
            torch.testing.assert_close(ours(x, form), expected)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_weights_over_a_graph(name):
    x, edges = torch.randn(6, 4).double(), random_edges(6, 6, 15)
    ours, theirs = pair(name, 4, 2)
    _, (index, alpha) = theirs(x, edges, return_attention_weights=True)
    for form in (edges, edges.int(), Graph.from_edge_index(edges, nodes=6)):
        _, (mine, weights) = ours(x, form, return_attention_weights=True)
        assert torch.equal(mine.long(), index)
        assert mine.dtype == (form.dtype if isinstance(form, torch.Tensor) else torch.int64)
        torch.testing.assert_close(weights, alpha)


def test_weighted_graph():
    """A graph's own weights are GCN's edge weights."""
    x, edges, weight = torch.randn(6, 4).double(), random_edges(6, 6, 15), torch.rand(15).double()
    ours, theirs = pair("GCNConv", 4, 2)
    graph = Graph.from_edge_index(edges, nodes=6, weight=weight)
    torch.testing.assert_close(ours(x, graph), theirs(x, edges, weight))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(name, dtype):
    """Sums are in float32, so half precision costs its own rounding and no more."""
    x, edges = torch.randn(300, 8), random_edges(300, 300, 6000)
    ours, _ = pair(name, 8, 4, dtype=torch.float32)
    low = getattr(heedful.interop.pyg, name)(8, 4).to(dtype)
    low.load_state_dict(ours.state_dict())
    ours.load_state_dict(low.state_dict())  # rounded alike
    out = low(x.to(dtype), edges)
    assert out.dtype == dtype
    expected = ours(x.to(dtype).float(), edges)
    step = 2**-7 if dtype == torch.bfloat16 else 2**-10
    assert (out.float() - expected).abs().max() <= 8 * step * expected.abs().max()
