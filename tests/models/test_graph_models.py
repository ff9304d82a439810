"""Graph models: sizes as published, samples and batches, who is heard instead, and that they learn."""

import pytest
import torch
from torch.nn import functional as F

from heedful import Everyone, Graph, models, nn
from heedful.models import GAT, GCN, MPNN, GraphTransformer

DOUBLE = torch.float64


def citations(nodes=60, classes=3, width=40):
    """Nodes of a class mostly cite their own, and share words: mostly zeros."""
    label = torch.arange(nodes) % classes
    source, target = torch.randint(nodes, (2, 12 * nodes))
    keep = (label[source] == label[target]) | (torch.rand(12 * nodes) < 0.1)
    graph = Graph.from_edges(source[keep], target[keep], nodes=nodes).undirected()
    own = torch.arange(width) % classes == label[:, None]
    words = (torch.rand(nodes, width) < torch.where(own, 0.25, 0.1)).float()
    return words / words.sum(1, keepdim=True).clamp(min=1), graph, label


# Sizes


def test_parameter_counts_on_cora():
    assert GAT(1433, 8, 7).parameter_count == 92_373
    assert GCN(1433, 16, 7).parameter_count == 23_063
    course = GAT(1433, 2, 7, heads=8, shared=True)
    assert course.parameter_count == 1433 * 16 + 2 * 2 + 16 + 16 * 7 + 2 * 7 + 7
    pubmed = GAT(500, 8, 3, output_heads=8)
    assert pubmed.parameter_count == 500 * 64 + 3 * 64 + 64 * 24 + 2 * 24 + 3


def test_gat_is_pygs(seed):
    pyg = pytest.importorskip("torch_geometric.nn")
    x, graph, _ = citations()
    ours, index = GAT(40, 8, 3).eval(), graph.without_self_loops().to_edge_index()
    first, second = pyg.GATConv(40, 8, heads=8), pyg.GATConv(64, 3, heads=1, concat=False)
    with torch.no_grad():
        for mine, other in zip(ours.layers, (first, second), strict=True):
            other.lin.weight.copy_(mine.weight.T)
            other.att_dst.copy_(mine.listener[None])
            other.att_src.copy_(mine.speaker[None])
            other.bias.copy_(mine.bias.normal_())
        expected = second(F.elu(first(x, index)), index)
        found = ours(x, graph.without_self_loops())
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_gcn_is_pygs(seed):
    pyg = pytest.importorskip("torch_geometric.nn")
    x, graph, _ = citations()
    graph = graph.without_self_loops()  # of several loops PyG keeps one
    ours, index = GCN(40, 16, 3).eval(), graph.to_edge_index()
    first, second = pyg.GCNConv(40, 16), pyg.GCNConv(16, 3)
    with torch.no_grad():
        for mine, other in zip(ours.layers, (first, second), strict=True):
            other.lin.weight.copy_(mine.weight.T)
            other.bias.copy_(mine.bias.normal_())
        expected = second(F.relu(first(x, index)), index)
    torch.testing.assert_close(ours(x, graph), expected, rtol=1e-4, atol=1e-5)


# Learning


@pytest.mark.parametrize(
    "build",
    [
        lambda: GCN(40, 16, 3),
        lambda: GCN(40, 16, 3, layers=3, norm="batch", residual=True, activation="gelu"),
        lambda: GAT(40, 8, 3),
        lambda: GAT(40, 8, 3, layers=3, norm="layer", residual=True),
        lambda: MPNN(40, 16, 3, layers=2, aggregate="mean"),
        lambda: MPNN(40, 16, 3, update="mlp", shared=True, norm="rms", dropout=0.2, aggregate="mean"),
        lambda: GraphTransformer(40, 16, 3, layers=2),
        lambda: GraphTransformer(40, 16, 3, layers=2, neighbors="everyone", positions=4),
    ],
)
def test_they_learn_what_they_see(build, seed):
    """Sparse features, dropout and all: the training nodes are told apart, the loss more than halved."""
    x, graph, label = citations()
    model, sparse = build(), Graph.from_dense(x)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def loss():
        return F.cross_entropy(model(sparse, graph), label)

    with torch.no_grad():
        before = float(loss())
    for _ in range(150):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        assert float(loss()) < before / 2
        assert (model(sparse, graph).argmax(1) == label).double().mean() > 0.9
        torch.testing.assert_close(model(x, graph), model(sparse, graph), rtol=1e-3, atol=1e-4)


# Samples and batches


@pytest.mark.parametrize(
    "build",
    [
        lambda: GAT(40, 4, 3, layers=2, heads=2),
        lambda: GAT(40, 4, 3, layers=2, heads=2, residual=True, edge_features=2),
        lambda: MPNN(40, 8, 3, layers=2),
        lambda: MPNN(40, 8, 3, layers=2, edge_features=2, shared=True),
    ],
)
def test_a_sample_of_all_neighbours_is_exact(build, seed):
    x, graph, _ = citations()
    model, x, e = build().to(DOUBLE).eval(), x.double(), torch.randn(graph.edges, 2, dtype=DOUBLE)
    edge_features = bool(model.config["edge_features"])
    drawn = graph.sample([5, 17, 3], [-1, -1])
    whole = model(x, graph, e) if edge_features else model(x, graph)
    part = x[drawn.nodes]
    found = model(part, drawn.layers, e[drawn.edges]) if edge_features else model(part, drawn.layers)
    torch.testing.assert_close(found, whole[[5, 17, 3]], rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match=r"2 of them, one a layer"):
        model(part, drawn.layers[:1], *([e[drawn.edges]] if edge_features else []))


def test_a_sampled_gcn(seed):
    x, graph, _ = citations()
    model = GCN(40, 8, 3).to(DOUBLE).eval()
    sampled = GCN(40, 8, 3, normalize=None, self_loops=False).to(DOUBLE).eval()
    sampled.load_state_dict(model.state_dict())
    ones = graph.with_edges(weight=torch.ones(graph.edges, dtype=DOUBLE))
    drawn = ones.with_self_loops().normalized().sample([5, 17, 3], [-1, -1])
    found = sampled(x.double()[drawn.nodes], drawn.layers)
    torch.testing.assert_close(found, model(x.double(), graph)[[5, 17, 3]], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "build",
    [
        lambda: GCN(6, 8, 3),
        lambda: GAT(6, 4, 3),
        lambda: GAT(6, 4, 3, neighbors="everyone"),
        lambda: MPNN(6, 8, 3),
        lambda: MPNN(6, 8, 3, readout="max"),
        lambda: GraphTransformer(6, 8, 3),
        lambda: GraphTransformer(6, 8, 3, neighbors="everyone"),
        lambda: GraphTransformer(6, 8, 3, neighbors="window(2)", readout="sum"),
        lambda: GraphTransformer(6, 8, 3, neighbors="everyone", positions=3, similarity="elu"),
    ],
)
def test_graphs_of_a_batch_do_not_meet(build, seed):
    model = build().to(DOUBLE).eval()
    graphs = [
        Graph.from_edges(torch.randint(n, (3 * n,)), torch.randint(n, (3 * n,)), nodes=n) for n in (5, 9, 3)
    ]
    xs = [torch.randn(graph.nodes, 6, dtype=DOUBLE) for graph in graphs]
    together = model(torch.cat(xs), Graph.batch(graphs))
    alone = torch.cat([model(x, graph) for x, graph in zip(xs, graphs, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)


# Options


def test_everyone_is_heard_without_edges(seed):
    model, x = GAT(6, 4, 3, neighbors=Everyone()).to(DOUBLE).eval(), torch.randn(7, 6, dtype=DOUBLE)
    complete = GAT(6, 4, 3).to(DOUBLE).eval()
    complete.load_state_dict(model.state_dict())
    torch.testing.assert_close(
        model(x, Graph.empty(7)), complete(x, Graph.complete(7)), rtol=1e-10, atol=1e-10
    )
    assert repr(model.config["neighbors"]) == "Everyone()"


def test_attention_of_every_layer(seed):
    x, graph, _ = citations()
    model = GAT(40, 4, 3, layers=3, heads=2)
    model.after[0].eval()  # a part that the caller froze
    layers = model.attention(x, graph)
    assert [tuple(layer.weight.shape) for layer in layers] == [(2, layers[0].edges)] * 2 + [
        (1, layers[0].edges)
    ]
    for layer in layers:
        total = layer.degree(weighted=True)
        torch.testing.assert_close(total, torch.ones_like(total))
    assert model.training and model.layers[0].training and not model.after[0].training
    assert all(
        torch.equal(a.weight, b.weight) for a, b in zip(layers, model.attention(x, graph), strict=True)
    )


def test_positions_may_be_given_and_flip_in_training(seed):
    x, graph, _ = citations()
    model = GraphTransformer(40, 16, 3, positions=4, dropout=0.0)
    places = nn.laplacian_positions(graph, 4)
    model.eval()
    torch.testing.assert_close(model(x, graph, positions=places), model(x, graph))
    assert not torch.allclose(model(x, graph, positions=-places), model(x, graph))
    model.train()
    outs = torch.stack([model(x, graph) for _ in range(40)])
    assert len(outs.detach().sum((1, 2)).unique()) > 1
    with pytest.raises(ValueError, match=r"positions has shape \(60, 3\); it takes \(60, 4\)"):
        model(x, graph, positions=places[:, :3])


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: GCN(6, 0, 3), r"GCN\(hidden=0\)"),
        (lambda: GCN(6, 8, 3, dropout=1.0), "takes a share"),
        (lambda: GCN(6, 8, 3, activation="rleu"), "did you mean 'relu'"),
        (lambda: GCN(6, 8, 3, norm="group"), "takes one of 'batch', 'layer', 'rms'"),
        (lambda: GAT(6, 8, 3, neighbors="everybody"), "did you mean 'everyone'"),
        (lambda: GAT(6, 8, 3, neighbors="everyone", edge_features=2), "leave one of the two out"),
        (lambda: GraphTransformer(6, 9, 3, heads=4), "hidden=9 does not divide into heads=4"),
        (lambda: GraphTransformer(6, 8, 3, readout="average"), "takes one of 'sum', 'mean'"),
        (lambda: MPNN(6, 8, 3, update="lstm"), "takes one of 'gru', 'mlp'"),
        (lambda: MPNN(6, 8, 3)(torch.randn(2, 6), Graph.empty(2), torch.randn(0, 2)), "got some in the call"),
        (lambda: GCN(6, 8, 3)(torch.randn(2, 6), "graph"), "graph must be a Graph, or 2 of them"),
    ],
)
def test_errors_teach(build, says):
    with pytest.raises(ValueError, match=says):
        build()


def test_repr_tells_the_size():
    text = repr(models.GAT(1433, 8, 7))
    assert "92,373 parameters" in text and "hidden=8" in text


def test_dropout_that_is_watched_or_replaced(seed):
    """Computed together with the ReLU before it, it is seen by hooks all the same, and any module will do."""
    graph, x = Graph.from_edges(*torch.randint(20, (2, 60)), nodes=20), torch.randn(20, 12)
    model, calls = GCN(12, 8, 3, layers=3), []
    handles = [
        model.dropout.register_forward_hook(lambda *_: calls.append("forward")),
        model.dropout.register_full_backward_hook(lambda *_: calls.append("backward")),
    ]
    model(x, graph).sum().backward()
    assert (
        calls.count("forward") == 3 and calls.count("backward") >= 2
    )  # nobody asks for the input's gradient
    for handle in handles:
        handle.remove()
    whole = model.eval()(x, graph)
    model.train()
    for other in (torch.nn.Identity(), torch.nn.Dropout(0.0)):
        model.dropout = model.input_dropout = other
        torch.testing.assert_close(model(x, graph), whole)
