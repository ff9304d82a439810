"""convert: a trained PyG model goes on with heedful's layers, weights and optimizer as they were."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch_geometric.nn as theirs
from torch import nn

import heedful.interop.pyg as pyg
from heedful.interop.pyg import convert

from .pyg_cases import LAYERS, Draw, pair, random_edges


@pytest.fixture(autouse=True)
def _seeded(seed):
    """All of these are random."""


MODELS = {
    "GAT": lambda: theirs.GAT(6, 8, num_layers=3, out_channels=4, heads=2, v2=False),
    "GATv2": lambda: theirs.GAT(6, 8, num_layers=2, out_channels=4, heads=2, v2=True, edge_dim=3),
    "GCN": lambda: theirs.GCN(6, 8, num_layers=3, out_channels=4, norm="batch"),
    "GraphSAGE": lambda: theirs.GraphSAGE(6, 8, num_layers=2, out_channels=4, jk="cat", aggr="max"),
    "Sequential": lambda: theirs.Sequential(
        "x, edge_index",
        [
            (theirs.TransformerConv(6, 8, heads=2, beta=True), "x, edge_index -> x"),
            nn.ReLU(),
            (theirs.GCNConv(16, 4), "x, edge_index -> x"),
        ],
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    model = MODELS[name]().double()
    x, edges = torch.randn(10, 6).double(), random_edges(10, 10, 40)
    extra = {"edge_attr": torch.randn(40, 3).double()} if name == "GATv2" else {}
    before = copy.deepcopy(model).eval()
    converted = convert(model)
    assert converted is model
    assert not [m for m in model.modules() if isinstance(m, theirs.MessagePassing)]
    model.eval()
    torch.testing.assert_close(model(x, edges, **extra), before(x, edges, **extra), rtol=1e-10, atol=1e-10)
    assert list(model.state_dict()) == list(before.state_dict())


def test_training_goes_on():
    """Same optimizer, same state, same steps."""
    model = theirs.GAT(6, 8, num_layers=2, out_channels=3, heads=2).double()
    x, edges, y = torch.randn(10, 6).double(), random_edges(10, 10, 40), torch.randint(3, (10,))
    twin = copy.deepcopy(model)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01, weight_decay=0.1) for m in (model, twin)]

    def steps(n):
        for m, optimizer in zip((model, twin), optimizers, strict=True):
            for _ in range(n):
                optimizer.zero_grad()
                nn.functional.cross_entropy(m(x, edges), y).backward()
                optimizer.step()

    steps(3)
    convert(model)
    steps(5)
    assert any(isinstance(m, pyg.GATConv) for m in model.modules())
    for mine, wanted in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("name", LAYERS)
def test_any_layer(name, number, seed):
    args, options, inputs, call = Draw(f"{seed} {name} {number}").layer(name)
    _, layer = pair(name, *args, **options)
    ours = convert(layer)
    assert isinstance(ours, getattr(pyg, name))
    call.pop("return_attention_weights", None)
    torch.testing.assert_close(ours(*inputs, **call), layer(*inputs, **call), rtol=1e-10, atol=1e-10)
    for (key, mine), (name_there, there) in zip(
        ours.named_parameters(), layer.named_parameters(), strict=True
    ):
        assert key == name_there and mine is there


def test_state_is_kept():
    """Frozen parameters, evaluation mode, gradients, the random state; a layer used twice stays one."""

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = theirs.GCNConv(4, 4)
            self.again = self.first

        def forward(self, x, edges):
            return self.again(self.first(x, edges), edges)

    model = Twice()
    model.first.lin.weight.requires_grad_(False)
    model.first.eval()
    x, edges = torch.randn(5, 4), random_edges(5, 5, 9)
    model(x, edges).sum().backward()
    grad = model.first.bias.grad
    state = torch.get_rng_state()
    expected = model(x, edges)
    convert(model)
    assert torch.equal(state, torch.get_rng_state())
    assert model.first is model.again
    assert not model.first.lin.weight.requires_grad and not model.first.training and model.training
    assert model.first.bias.grad is grad
    torch.testing.assert_close(model(x, edges), expected)


def test_lazy_layers():
    model = nn.ModuleDict({"seen": theirs.SAGEConv((-1, -1), 2), "unseen": theirs.GATConv(-1, 2)})
    x, edges = torch.randn(5, 4), random_edges(5, 5, 9)
    expected = model["seen"](x, edges)
    convert(model)
    torch.testing.assert_close(model["seen"](x, edges), expected)
    assert model["unseen"](x, edges).shape == (5, 2)


def test_aggregations_given_as_objects():
    layer = theirs.SAGEConv(4, 2, aggr=theirs.MaxAggregation())
    x, edges = torch.randn(5, 4), random_edges(5, 5, 9)
    ours = convert(layer)
    assert ours.aggr == "max"
    torch.testing.assert_close(ours(x, edges), layer(x, edges))


def test_what_cannot_be_replaced_stays_and_is_listed():
    class Own(theirs.GATConv):
        def message(self, x_j, alpha):
            return -super().message(x_j, alpha)

    hooked = theirs.GCNConv(4, 4)
    hooked.register_message_forward_hook(lambda *_: None)
    watched = theirs.GCNConv(4, 4)
    watched.register_forward_hook(lambda *_: None)
    normed = theirs.GCNConv(4, 4)
    nn.utils.parametrizations.weight_norm(normed.lin)
    stays = {
        "own": Own(4, 4),
        "hooked": hooked,
        "watched": watched,
        "normed": nn.utils.parametrizations.weight_norm(theirs.GCNConv(4, 4), "bias", dim=None),
        "lstm": theirs.SAGEConv(4, 4, aggr="lstm"),
        "median": theirs.SAGEConv(4, 4, aggr="median"),
        "summed": theirs.SAGEConv(4, 4, aggr=["mean", "max"], aggr_kwargs={"mode": "sum"}),
        "gin": theirs.GINConv(nn.Linear(4, 4)),
        "reversed": theirs.GCNConv(4, 4, flow="target_to_source"),
        "averaged": theirs.GATConv(4, 4, aggr="mean"),
        "semi": theirs.SAGEConv(4, 4, aggr="var", aggr_kwargs={"semi_grad": True}),
    }
    model = nn.ModuleDict({**stays, "goes": theirs.GCNConv(4, 4)})
    with pytest.warns(UserWarning, match="stay as they are") as caught:
        convert(model)
    listed = str(caught[0].message)
    for name, layer in stays.items():
        assert model[name] is layer, name
        assert f"{name}, {type(layer).__name__}: " in listed
    assert "goes" not in listed and isinstance(model["goes"], pyg.GCNConv)


def test_twice_is_once():
    model = convert(theirs.GCN(4, 4, 2))
    layers = list(model.convs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert convert(model) is model
    assert all(a is b for a, b in zip(layers, model.convs, strict=True))
    with pytest.raises(TypeError, match="torch module, got str"):
        convert("model")


def test_swapped_in_a_users_model(monkeypatch):
    """Change one import: PyG's own GAT model builds our layers, and loads the weights of one that did not."""
    model = theirs.GAT(6, 8, num_layers=2, out_channels=3, heads=4, dropout=0.5).eval()
    monkeypatch.setattr("torch_geometric.nn.models.basic_gnn.GATConv", pyg.GATConv)
    swapped = theirs.GAT(6, 8, num_layers=2, out_channels=3, heads=4, dropout=0.5).eval()
    assert all(isinstance(conv, pyg.GATConv) for conv in swapped.convs)
    swapped.load_state_dict(model.state_dict())
    x, edges = torch.randn(10, 6), random_edges(10, 10, 40)
    torch.testing.assert_close(swapped(x, edges), model(x, edges), rtol=1e-5, atol=1e-5)


def test_heterogeneous():
    """HeteroConv only calls its layers; bipartite ones too."""
    layers = {
        ("author", "writes", "paper"): theirs.SAGEConv((-1, -1), 4),
        ("paper", "cites", "paper"): theirs.GATConv(5, 4),
    }
    model = theirs.HeteroConv(layers)
    x = {"author": torch.randn(3, 7), "paper": torch.randn(6, 5)}
    edges = {
        ("author", "writes", "paper"): random_edges(3, 6, 9),
        ("paper", "cites", "paper"): random_edges(6, 6, 9),
    }
    expected = model(x, edges)["paper"]
    torch.testing.assert_close(convert(model)(x, edges)["paper"], expected)
