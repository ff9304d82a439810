"""torch.export and torch.compile of models made of the drop-ins."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim, export

import heedful.interop.pyg as pyg
from heedful import Graph

from .pyg_cases import LAYERS, random_edges


@pytest.fixture(autouse=True)
def _seeded(seed):
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self, name, **options):
        super().__init__()
        kind = getattr(pyg, name)
        self.first, self.second = kind(6, 8, **options), kind(8, 3, **options)

    def forward(self, x, edge_index, extra=None):
        more = () if extra is None else (extra,)
        return self.second(self.first(x, edge_index, *more).relu(), edge_index, *more)


CASES = [
    ("GATConv", {}, None),
    ("GATConv", {"edge_dim": 2}, 2),
    ("GATv2Conv", {}, None),
    ("GATv2Conv", {"edge_dim": 2, "fill_value": "max"}, 2),
    ("GCNConv", {}, None),
    ("GCNConv", {"improved": True}, ()),
    ("GCNConv", {"add_self_loops": False}, None),
    ("SAGEConv", {}, None),
    ("SAGEConv", {"aggr": ["std", "max"]}, None),
    ("TransformerConv", {"edge_dim": 2, "beta": True}, 2),
]


@pytest.mark.parametrize("name,options,extra", CASES)
def test_export(name, options, extra):
    """One program for any number of nodes and edges, of plain torch operators: it runs without heedful."""
    net = Net(name, **options).eval()

    def inputs(nodes, edges):
        given = [torch.randn(nodes, 6), random_edges(nodes, nodes, edges)]
        if extra is not None:
            given.append(torch.rand(edges, *([extra] if extra else [])))
        return tuple(given)

    nodes, edges = Dim("nodes", min=2), Dim("edges", min=2)
    shapes = {"x": {0: nodes}, "edge_index": {1: edges}}
    if extra is not None:
        shapes["extra"] = {0: edges}
    program = export(net, inputs(20, 50), dynamic_shapes=shapes)
    assert not [node for node in program.graph.nodes if "heedful" in str(node.target)]
    module = program.module()
    for size in ((20, 50), (7, 13), (50, 300)):
        given = inputs(*size)
        torch.testing.assert_close(module(*given), net(*given), rtol=1e-4, atol=1e-5)


def test_export_refuses_weights_of_an_unknown_number():
    class Weights(nn.Module):
        def __init__(self, **options):
            super().__init__()
            self.layer = pyg.GATConv(6, 2, **options)

        def forward(self, x, edge_index):
            return self.layer(x, edge_index, return_attention_weights=True)[1][1]

    given = torch.randn(5, 6), random_edges(5, 5, 9)
    with pytest.raises(NotImplementedError, match="add_self_loops=False"):
        export(Weights(), given)
    net = Weights(add_self_loops=False)
    torch.testing.assert_close(export(net, given).module()(*given), net(*given))


def assert_compiles(layer, compiled, nodes):
    x, edges = torch.randn(nodes, 6, requires_grad=True), random_edges(nodes, nodes, 3 * nodes)
    results = []
    for module in (compiled, layer):
        out = module(x, edges)
        results.append([out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])])
    for mine, wanted in zip(*results, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-4)
    edges.copy_(edges.flip(0))
    torch.testing.assert_close(compiled(x, edges), layer(x, edges.clone()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["GATConv", "GCNConv"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_compile(name, dynamic):
    """edge_index is looked up between two graphs; what is kept, and when, is as without the compiler."""
    torch.compiler.reset()
    layer = getattr(pyg, name)(6, 3)
    assert_compiles(layer, torch.compile(layer, backend="aot_eager", dynamic=dynamic), 20)


def test_compile_for_other_sizes():
    layer = pyg.SAGEConv(6, 3, aggr="max")
    compiled = torch.compile(layer, backend="aot_eager")
    for nodes in (20, 31):
        assert_compiles(layer, compiled, nodes)


@pytest.mark.parametrize("name", LAYERS)
def test_compile_whole(name):
    """With a Graph, and its loops as they are, there is nothing to look up."""
    loops = {"add_self_loops": False} if name in ("GATConv", "GATv2Conv", "GCNConv") else {}
    net = getattr(pyg, name)(6, 3, **loops)
    x, graph = torch.randn(20, 6), Graph.from_edge_index(random_edges(20, 20, 60), nodes=20)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, graph), net(x, graph), rtol=1e-4, atol=1e-5)
