"""What torch.export makes of graph models: one program for any graph, with or without heedful's operators."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.export import Dim, export

from heedful import Graph
from heedful.models import GAT, GCN, MPNN, GraphTransformer, OverEdges, portable

MODELS = {
    "gcn": lambda: GCN(6, 8, 3),
    "gcn, weighted": lambda: GCN(6, 8, 3, layers=3, norm="layer", residual=True),
    "gat": lambda: GAT(6, 4, 3),
    "gat, edge features": lambda: GAT(6, 4, 3, edge_features=2, heads=3),
    "mpnn": lambda: MPNN(6, 8, 3, edge_features=2),
    "graph transformer": lambda: GraphTransformer(6, 8, 3, layers=2),
    "graph transformer, edge features": lambda: GraphTransformer(6, 8, 3, layers=2, edge_features=2),
}
every = pytest.mark.parametrize("name", MODELS)


def inputs(name, nodes, edges):
    index = torch.randint(nodes, (2, edges))
    index[:, 0] = 0  # some have loops, most have not
    weight = torch.rand(edges) + 0.1 if "weighted" in name else None
    features = torch.randn(edges, 2) if "edge features" in name or name == "mpnn" else None
    return torch.randn(nodes, 6), index, weight, features


def exported(name, nodes=20, edges=64):
    given = inputs(name, nodes, edges)
    shapes = [{0: Dim.AUTO}, {1: Dim.AUTO}, *(None if t is None else {0: Dim.AUTO} for t in given[2:])]
    model = OverEdges(MODELS[name]().eval())
    with torch.no_grad():
        return model, export(model, given, dynamic_shapes=tuple(shapes))


def operators(program):
    return {str(node.target) for node in program.graph.nodes if "heedful" in str(node.target)}


@every
def test_one_program_for_any_graph(name, seed):
    model, program = exported(name)
    plain = portable(program)
    assert not operators(plain)
    for nodes, edges in ((20, 64), (7, 100), (150, 40), (2, 3)):
        given = inputs(name, nodes, edges)
        with torch.no_grad():
            expected = model(*given)
            torch.testing.assert_close(program.module()(*given), expected, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(plain.module()(*given), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_a_graph_that_never_changes(name, seed):
    """Closed over by the module: a constant of the program, planned for, and as good as new afterwards."""

    class Fixed(torch.nn.Module):
        def __init__(self, model, graph):
            super().__init__()
            self.model, self.graph = model, graph

        def forward(self, x):
            return self.model(x, self.graph)

    x, index, *_ = inputs(name, 300, 4000)
    graph = Graph.from_edge_index(index, nodes=300)
    module = Fixed(MODELS[name]().eval(), graph)
    with torch.no_grad():
        program = export(module, (x,))
        expected = module(x)
        assert operators(program)
        torch.testing.assert_close(program.module()(x), expected, rtol=1e-4, atol=1e-5)
        plain = portable(program)
        assert not operators(plain)
        torch.testing.assert_close(plain.module()(x), expected, rtol=1e-4, atol=1e-5)
        fresh = module.model(x, Graph.from_edge_index(index, nodes=300))
        torch.testing.assert_close(expected, fresh, rtol=1e-6, atol=1e-6)


def test_a_portable_program_needs_no_heedful(seed, tmp_path):
    model, program = exported("gcn")
    given = inputs("gcn", 30, 90)
    torch.export.save(portable(program), tmp_path / "gcn.pt2")
    torch.save((given[:2], model(*given).detach()), tmp_path / "case.pt")
    code = (
        "import sys, torch\n"
        f"inputs, expected = torch.load({str(tmp_path / 'case.pt')!r})\n"
        f"found = torch.export.load({str(tmp_path / 'gcn.pt2')!r}).module()(*inputs, None, None)\n"
        "torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)\n"
        "assert 'heedful' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_exported_says_so():
    with pytest.raises(ValueError, match="positions=0"):
        OverEdges(GraphTransformer(6, 8, 3, positions=2))
