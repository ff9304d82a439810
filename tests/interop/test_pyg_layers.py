"""What the drop-ins do beside giving PyG's numbers: dropout, lazy sizes, refusals, running without PyG."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch_geometric.nn

import heedful.interop.pyg as pyg
from heedful import Graph

from .pyg_cases import LAYERS, pair, random_edges

ATTENTION = ("GATConv", "GATv2Conv", "TransformerConv")


@pytest.fixture(autouse=True)
def _seeded(seed):
    """All of these are random."""


# Dropout


@pytest.mark.parametrize("name", ATTENTION)
def test_dropout_keeps_the_right_share(name):
    """Everyone has one neighbour: its value arrives doubled, or not at all."""
    nodes = 1000
    options = {"root_weight": False} if name == "TransformerConv" else {"add_self_loops": False}
    layer = getattr(pyg, name)(3, 2, dropout=0.5, bias=False, **options)
    x, ring = torch.randn(nodes, 3), torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
    whole, out = layer.eval()(x, ring), layer.train()(x, ring)
    kept = (out != 0).all(-1)
    torch.testing.assert_close(out[kept], 2 * whole[kept])
    assert not out[~kept].any()
    assert abs(int(kept.sum()) - nodes / 2) < 6 * (nodes / 4) ** 0.5  # six standard deviations


@pytest.mark.parametrize("name", ATTENTION)
def test_dropout_obeys_the_seed(name, seed):
    x, edges = torch.randn(8, 3), random_edges(8, 8, 30)
    layer = getattr(pyg, name)(3, 2, dropout=0.6)
    runs = []
    for n in (seed, seed, seed + 1):
        torch.manual_seed(n)
        runs.append(layer(x, edges))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    layer.eval()
    assert torch.equal(layer(x, edges), layer(x, edges))


def test_dropped_weights_are_those_applied():
    """GATConv and GATv2Conv show weights after dropout, TransformerConv before, like PyG."""
    x, edges = torch.randn(8, 3), random_edges(8, 8, 40)
    for name in ("GATConv", "GATv2Conv"):
        layer = getattr(pyg, name)(3, 2, heads=2, dropout=0.5, bias=False)
        out, (index, alpha) = layer(x, edges, return_attention_weights=True)
        values = (layer.lin if name == "GATConv" else layer.lin_l)(x).view(8, 2, 2)
        terms = alpha.unsqueeze(-1) * values[index[0]]
        expected = torch.zeros(8, 2, 2).index_add(0, index[1], terms).flatten(1)
        torch.testing.assert_close(out, expected)
        assert (alpha == 0).any()
    layer = pyg.TransformerConv(3, 2, dropout=0.5)
    _, (index, alpha) = layer(x, edges, return_attention_weights=True)
    heard = torch.zeros(8).index_add(0, index[1], alpha[:, 0])
    torch.testing.assert_close(heard[index[1].unique()], torch.ones(len(index[1].unique())))


# Sizes that are seen later


LAZY = {
    "GATConv": [(-1, {}), ((-1, -1), {"residual": True}), ((4, -1), {})],
    "GATv2Conv": [(-1, {"residual": True}), ((-1, -1), {}), (-1, {"share_weights": True})],
    "GCNConv": [(-1, {})],
    "SAGEConv": [(-1, {}), ((-1, -1), {}), (-1, {"aggr": ["mean", "max"]})],
    "TransformerConv": [(-1, {}), ((-1, -1), {"beta": True})],
}


@pytest.mark.parametrize("name,channels,options", [(n, c, o) for n, every in LAZY.items() for c, o in every])
def test_lazy_sizes(name, channels, options, seed):
    edges = random_edges(6, 6, 15)
    x = torch.randn(6, 4)
    x = (x, torch.randn(6, 5)) if isinstance(channels, tuple) else x
    theirs, ours = (getattr(library, name)(channels, 2, **options) for library in (torch_geometric.nn, pyg))
    assert repr(ours) == repr(theirs)
    untouched = getattr(pyg, name)(channels, 2, **options)
    ours.load_state_dict(theirs.state_dict())  # nothing known on either side
    copy.deepcopy(ours)
    expected = theirs(x, edges)
    ours.load_state_dict(theirs.state_dict())  # the sizes come with the weights
    torch.testing.assert_close(ours(x, edges), expected)
    out = untouched(x, edges)  # the sizes come with the input
    assert out.shape == expected.shape
    out.sum().backward()
    untouched.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(untouched(x, edges), expected)
    fresh = getattr(pyg, name)(channels, 2, **options)
    untouched.load_state_dict(fresh.state_dict())  # and are forgotten again
    untouched(x, edges)


def test_lazy_layers_move_and_change_type():
    layer = pyg.GATConv(-1, 2).double()
    assert layer(torch.randn(5, 3).double(), random_edges(5, 5, 9)).dtype == torch.float64


def test_first_call_in_inference_mode_leaves_a_trainable_layer():
    layer, x, edges = pyg.SAGEConv(-1, 2), torch.randn(5, 3), random_edges(5, 5, 9)
    with torch.inference_mode():
        layer(x, edges)
    layer(x, edges).sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())


# Any order, any time


@pytest.mark.parametrize("name", LAYERS)
def test_order_of_edges_does_not_matter(name):
    x, edges = torch.randn(8, 3).double(), random_edges(8, 8, 40)
    layer = getattr(pyg, name)(3, 2).double()
    order = torch.randperm(40)
    torch.testing.assert_close(layer(x, edges[:, order]), layer(x, edges), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LAYERS)
def test_same_bits_every_time(name):
    x, edges = torch.randn(300, 16, requires_grad=True), random_edges(300, 300, 6000)
    layer = getattr(pyg, name)(16, 8)
    wanted = [x, *layer.parameters()]
    runs = []
    for index in (edges, edges, edges.clone()):
        out = layer(x, index)
        runs.append([out, *torch.autograd.grad(out.square().sum(), wanted, allow_unused=True)])
    for run in runs[1:]:
        assert all(a is b is None or torch.equal(a, b) for a, b in zip(runs[0], run, strict=True))


@pytest.mark.parametrize("name", LAYERS)
def test_second_derivatives(name):
    """PyG's layers can be differentiated twice; so can these."""
    x, edges = torch.randn(5, 2, dtype=torch.float64, requires_grad=True), random_edges(5, 5, 9)
    layer = getattr(pyg, name)(2, 2).double()
    assert torch.autograd.gradgradcheck(lambda x: layer(x, edges).square(), x)


@pytest.mark.parametrize("name", LAYERS)
def test_functional_call_and_vmap(name):
    """An ensemble of weights over one graph."""
    layers = [getattr(pyg, name)(3, 2) for _ in range(4)]
    x, edges = torch.randn(7, 3), random_edges(7, 7, 20)
    parameters, buffers = torch.func.stack_module_state(layers)

    def call(parameters, buffers):
        return torch.func.functional_call(layers[0], (parameters, buffers), (x, edges))

    outs = torch.func.vmap(call)(parameters, buffers)
    torch.testing.assert_close(outs, torch.stack([layer(x, edges) for layer in layers]))


@pytest.mark.parametrize("name", LAYERS)
def test_autocast(name):
    x, edges = torch.randn(50, 8), random_edges(50, 50, 400)
    ours, theirs = pair(name, 8, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = ours(x, edges)
    expected = theirs(x, edges)
    assert (out.float() - expected).abs().max() <= 0.1 * expected.abs().max()


@pytest.mark.parametrize("name", LAYERS)
def test_nobody_there(name):
    layer = getattr(pyg, name)(3, 2)
    none = torch.empty(2, 0, dtype=torch.long)
    assert layer(torch.randn(0, 3), none).shape == (0, 2)
    alone = layer(torch.randn(4, 3), none)
    assert alone.shape == (4, 2) and torch.isfinite(alone).all()


# What is refused


def refused(error, text, call):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value), caught.value


@pytest.mark.parametrize("name", LAYERS)
def test_options_that_are_refused(name):
    kind = getattr(pyg, name)
    refused(NotImplementedError, "edge_index.flip(0)", lambda: kind(3, 2, flow="target_to_source"))
    refused(ValueError, "flow is 'sideways'", lambda: kind(3, 2, flow="sideways"))
    refused(NotImplementedError, "aggr is 'lstm'", lambda: kind(3, 2, aggr="lstm"))
    refused(NotImplementedError, "aggr is 'median'", lambda: kind(3, 2, aggr="median"))
    refused(NotImplementedError, "aggr_kwargs", lambda: kind(3, 2, aggr_kwargs={"learn": True}))
    refused(NotImplementedError, "decomposed_layers", lambda: kind(3, 2, decomposed_layers=2))
    refused(TypeError, "colour", lambda: kind(3, 2, colour="red"))
    refused(ValueError, "in_channels is 0", lambda: kind(0, 2))
    refused(ValueError, "out_channels", lambda: kind(3, 0))


def test_wrong_options():
    refused(ValueError, "heads must be a positive number, got 0", lambda: pyg.GATConv(3, 2, heads=0))
    refused(ValueError, "dropout must lie in [0, 1), got 1.5", lambda: pyg.GATv2Conv(3, 2, dropout=1.5))
    refused(ValueError, "negative_slope", lambda: pyg.GATConv(3, 2, negative_slope=-0.1))
    refused(ValueError, "fill_value is 'middle'", lambda: pyg.GATConv(3, 2, edge_dim=1, fill_value="middle"))
    refused(ValueError, "normalize", lambda: pyg.GCNConv(3, 2, add_self_loops=True, normalize=False))
    refused(ValueError, "bipartite", lambda: pyg.GCNConv((3, 3), 2))
    refused(ValueError, "project", lambda: pyg.SAGEConv(-1, 2, project=True))
    refused(ValueError, "empty list", lambda: pyg.SAGEConv(3, 2, aggr=[]))


@pytest.mark.parametrize("name", LAYERS)
def test_edges_that_are_refused(name):
    layer, x, edges = getattr(pyg, name)(3, 2), torch.randn(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])
    refused(ValueError, "edge_index[0][1] is 4", lambda: layer(x, torch.tensor([[0, 4], [1, 2]])))
    refused(ValueError, "edge_index[1][0] is -1", lambda: layer(x, torch.tensor([[0, 1], [-1, 2]])))
    refused(TypeError, "float32", lambda: layer(x, edges.float()))
    refused(TypeError, "bool", lambda: layer(x, edges.bool()))
    refused(ValueError, "shape (3, 2)", lambda: layer(x, edges.T))
    refused(TypeError, "list", lambda: layer(x, [[0, 1], [1, 2]]))
    refused(NotImplementedError, "sparse matrix", lambda: layer(x, torch.eye(4).to_sparse()))
    refused(NotImplementedError, "sparse matrix", lambda: layer(x, torch.eye(4).to_sparse(1)))
    refused(ValueError, "x on cpu", lambda: layer(x, edges.to("meta")))
    refused(ValueError, "5 sources", lambda: layer(x, Graph.complete(5)))
    biased = Graph.complete(4).with_edges(bias=torch.zeros(16))
    refused(ValueError, "carries bias", lambda: layer(x, biased))
    refused(ValueError, "nodes, features", lambda: layer(torch.randn(4), edges))


@pytest.mark.parametrize("name", LAYERS)
def test_nodes_that_are_refused(name):
    kind, x, edges = getattr(pyg, name), torch.ones(4, 5), torch.tensor([[0, 1, 2], [1, 2, 3]])
    layer, lazy = kind(3, 2), kind(-1, 2)
    refused(ValueError, f"{name}: x has 5 features; the layer takes 3", lambda: layer(x, edges))
    refused(TypeError, f"{name}: x must be a floating point tensor", lambda: lazy(x.int(), edges))
    refused((TypeError, ValueError), f"{name}: x must be a tensor", lambda: layer(None, edges))
    if name != "GCNConv":
        pair, both = (torch.ones(4, 3), torch.ones(4, 6)), kind((3, 5), 2)
        refused(ValueError, f"{name}: x[1] has 6 features; the layer takes 5", lambda: both(pair, edges))
    if name == "SAGEConv":  # without their own weight, listeners only listen
        assert kind((3, 5), 2, root_weight=False)(pair, edges).shape == (4, 2)


def test_features_that_are_refused():
    x, edges = torch.randn(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])
    for name in ("GATConv", "GATv2Conv", "TransformerConv"):
        layer = getattr(pyg, name)(3, 2, edge_dim=2)
        refused(ValueError, "there are 3 edges", lambda layer=layer: layer(x, edges, torch.randn(4, 2)))
        refused(TypeError, "int64", lambda layer=layer: layer(x, edges, torch.ones(3, 2).long()))
        refused(ValueError, "(3, 1, 2)", lambda layer=layer: layer(x, edges, torch.randn(3, 1, 2)))
        refused(ValueError, "x must be", lambda layer=layer: layer(torch.randn(2, 4, 3), edges))
    refused(ValueError, "edge_dim", lambda: pyg.GATv2Conv(3, 2)(x, edges, torch.randn(3, 2)))
    refused(ValueError, "edge_dim", lambda: pyg.TransformerConv(3, 2)(x, edges, torch.randn(3, 2)))
    refused(ValueError, "edge_attr", lambda: pyg.TransformerConv(3, 2, edge_dim=2)(x, edges))
    refused(ValueError, "x[1] is None", lambda: pyg.GATv2Conv(3, 2)((x, None), edges))
    refused(ValueError, "x[1] is None", lambda: pyg.TransformerConv(3, 2)((x, None), edges))
    refused(ValueError, "size is (4, 5)", lambda: pyg.GATConv(3, 2)((x, x), edges, size=(4, 5)))
    refused(ValueError, "size is (5, 4)", lambda: pyg.SAGEConv(3, 2)((x, None), edges, size=(5, 4)))
    refused(ValueError, "3 entries", lambda: pyg.SAGEConv(3, 2)((x, x, x), edges))
    refused(ValueError, "tuple", lambda: pyg.GCNConv(3, 2)((x, x), edges))
    refused(TypeError, "edge_weight", lambda: pyg.GCNConv(3, 2)(x, edges, torch.ones(3).int()))
    refused(ValueError, "edge_weight", lambda: pyg.GCNConv(3, 2)(x, edges, torch.ones(2)))
    refused(ValueError, "one number an edge", lambda: pyg.GCNConv(3, 2)(x, edges, torch.ones(3, 2)))


# Without PyG


def test_pyg_is_not_needed():
    code = (
        "import sys; sys.modules['torch_geometric'] = None\n"
        "import torch\n"
        "from heedful.interop.pyg import GATConv, GATv2Conv, GCNConv, SAGEConv, TransformerConv, convert\n"
        "x, edges = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])\n"
        "for kind in (GATConv, GATv2Conv, GCNConv, SAGEConv, TransformerConv):\n"
        "    print(convert(kind(4, 2))(x, edges).shape[1], end='')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.stdout == "22222", done.stderr


def test_the_page_runs(capsys):
    """What docs/pyg.md says to type works, and prints what it says."""
    page = (Path(__file__).parents[2] / "docs" / "pyg.md").read_text(encoding="utf-8")
    names: dict = {}
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.S | re.M)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, "pyg.md", "exec"), names)
        printed = capsys.readouterr().out.splitlines()
        assert re.findall(r"# → (.*)$", block, re.M) == printed
