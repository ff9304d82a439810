"""Layers over graphs against their formulas written out densely, and on graphs that are odd."""

import gc
import weakref

import pytest
import torch
from torch.nn import Linear, ReLU
from torch.nn import functional as F

from heedful import Additive, Everyone, Graph, Segments, Softmax, nn
from heedful.nn.graph.normalize import _KEPT

DOUBLE = torch.float64


@pytest.fixture
def graph(seed):
    """Ten nodes, thirty edges: repeated ones, loops, and nodes that hear nobody."""
    source, target = torch.randint(10, (30,)), torch.randint(2, 10, (30,))
    source[:2], target[:2], source[2] = 4, 5, target[2]
    return Graph.from_edges(source, target, nodes=10)


def table(*shape):
    return torch.randn(*shape, dtype=DOUBLE)


LAYERS = {
    "graph conv": lambda: nn.GraphConv(6, 4),
    "graph conv, median": lambda: nn.GraphConv(6, 4, aggregate="median"),
    "gcn": lambda: nn.GCNConv(6, 4),
    "gcn, wider": lambda: nn.GCNConv(6, 9),
    "gat": lambda: nn.GATConv(6, 4, 3),
    "gat, shared, averaged": lambda: nn.GATConv(6, 4, 3, shared=True, concat=False),
    "gatv2": lambda: nn.GATv2Conv(6, 4, 3),
    "transformer": lambda: nn.GraphTransformerConv(6, 4, 3, skip="gated"),
    "transformer, polynomial": lambda: nn.GraphTransformerConv(6, 4, 3, similarity="polynomial(degree=2)"),
    "messages": lambda: nn.MessagePassing(nn.Jointly(Linear(12, 5), ReLU()), nn.Jointly(Linear(11, 4))),
    "messages, max": lambda: nn.MessagePassing(nn.Jointly(Linear(12, 5)), aggregate="max"),
}
ATTENDING = [name for name in LAYERS if name.startswith(("gat", "transformer"))]
every = pytest.mark.parametrize("name", LAYERS)


def make(name):
    layer = LAYERS[name]().to(DOUBLE)
    with torch.no_grad():
        for parameter in layer.parameters():  # biases that are 0 would hide where they are added
            parameter.copy_(torch.randn_like(parameter) / 2)
    return layer


# Formulas, all pairs


def softmax_over(scores, adjacency):
    """Rows of exp(scores) times how many edges there are, divided by their sum; 0 where there are none."""
    weights = adjacency * torch.exp(scores)
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / total.where(total > 0, 1), 0)


def with_loops(adjacency):
    return torch.where(torch.eye(10) * (adjacency.diagonal() == 0) > 0, 1, adjacency)


def test_gat_formula(graph):
    x, layer = table(10, 6), make("gat")
    z = (x @ layer.weight).view(10, 3, 4)
    adjacency, outs = with_loops(graph.adjacency().double()), []
    for h in range(3):
        scores = (z[:, h] @ layer.listener[h])[:, None] + (z[:, h] @ layer.speaker[h])[None]
        outs.append(softmax_over(F.leaky_relu(scores, 0.2), adjacency) @ z[:, h])
    torch.testing.assert_close(layer(x, graph), torch.cat(outs, 1) + layer.bias, rtol=1e-10, atol=1e-10)


def test_gat_with_one_score_vector(graph):
    """As in the course: heads differ in W only; the heads are averaged."""
    x, layer = table(10, 6), make("gat, shared, averaged")
    assert layer.listener.shape == layer.speaker.shape == (1, 4)
    z = (x @ layer.weight).view(10, 3, 4)
    adjacency, out = with_loops(graph.adjacency().double()), 0
    for h in range(3):
        scores = (z[:, h] @ layer.listener[0])[:, None] + (z[:, h] @ layer.speaker[0])[None]
        out = out + softmax_over(F.leaky_relu(scores, 0.2), adjacency) @ z[:, h] / 3
    torch.testing.assert_close(layer(x, graph), out + layer.bias, rtol=1e-10, atol=1e-10)


def test_gatv2_formula(graph):
    x, layer = table(10, 6), make("gatv2")
    listener, speaker = layer.listener(x).view(10, 3, 4), layer.speaker(x).view(10, 3, 4)
    adjacency, outs = with_loops(graph.adjacency().double()), []
    for h in range(3):
        hidden = F.leaky_relu(listener[:, None, h] + speaker[None, :, h], 0.2)
        outs.append(softmax_over(hidden @ layer.score[h], adjacency) @ speaker[:, h])
    torch.testing.assert_close(layer(x, graph), torch.cat(outs, 1) + layer.bias, rtol=1e-10, atol=1e-10)


def test_gcn_formula(graph):
    x, weight = table(10, 6), torch.rand(30, dtype=DOUBLE) + 0.1
    for name in ("gcn", "gcn, wider"):
        layer = make(name)
        a = with_loops(graph.with_edges(weight=weight).adjacency())
        root = a.sum(1).rsqrt()
        expected = root[:, None] * a * root @ x @ layer.weight + layer.bias
        found = layer(x, graph.with_edges(weight=weight))
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_gcn_normalised_by_rows_or_not_at_all(graph):
    x = table(10, 6)
    layer = nn.GCNConv(6, 4, normalize="row").to(DOUBLE)
    a = with_loops(graph.adjacency().double())
    torch.testing.assert_close(layer(x, graph), (a / a.sum(1, keepdim=True)) @ x @ layer.weight)
    layer = nn.GCNConv(6, 4, normalize=None, self_loops=False).to(DOUBLE)
    torch.testing.assert_close(layer(x, graph), graph.adjacency().double() @ x @ layer.weight)


@pytest.mark.parametrize("aggregate", ["mean", "sum", "max", "min", "median", "std"])
@pytest.mark.parametrize("outputs", [4, 9])
def test_graph_conv_formula(graph, aggregate, outputs):
    layer, x = nn.GraphConv(6, outputs, aggregate=aggregate).to(DOUBLE), table(10, 6)
    rows = []
    for i in range(10):
        heard = x[graph.source[graph.target == i]]
        one = {
            "mean": lambda h: h.mean(0),
            "sum": lambda h: h.sum(0),
            "max": lambda h: h.amax(0),
            "min": lambda h: h.amin(0),
            "median": lambda h: torch.quantile(h, 0.5, dim=0),
            "std": lambda h: h.std(0, correction=0),
        }[aggregate]
        rows.append(one(heard) if len(heard) else torch.zeros(6, dtype=DOUBLE))
    expected = torch.stack(rows) @ layer.weight + x @ layer.own + layer.bias
    torch.testing.assert_close(layer(x, graph), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("aggregate", ["mean", "sum", "max", "min", "median", "std"])
def test_messages_one_by_one(graph, aggregate):
    message, update = nn.Jointly(Linear(15, 5), ReLU()), nn.Jointly(Linear(11, 4))
    layer = nn.MessagePassing(message, update, aggregate=aggregate).to(DOUBLE)
    x, e = table(10, 6), table(30, 3)
    rows = []
    for i in range(10):
        mail = [message(x[i], x[graph.source[k]], e[k]) for k in range(30) if graph.target[k] == i]
        heard = torch.stack(mail)[:, None] if mail else table(0, 1, 5)
        one = Graph.from_edges(list(range(len(mail))), [0] * len(mail), sources=max(1, len(mail)), targets=1)
        gathered = heard.squeeze(1) if mail else table(1, 5)
        rows.append(update(x[i], one.aggregate(gathered, aggregate)[0]))
    torch.testing.assert_close(layer(x, graph, e), torch.stack(rows), rtol=1e-10, atol=1e-10)


def test_messages_count_by_weight(graph):
    x, weight = table(10, 6), torch.rand(30, dtype=DOUBLE, requires_grad=True)
    layer = nn.MessagePassing(lambda i, j: j)
    weighted = graph.with_edges(weight=weight)
    torch.testing.assert_close(layer(x, weighted), weighted.propagate(x))
    assert torch.autograd.grad(layer(x, weighted).square().sum(), weight)[0].abs().sum() > 0


def test_transformer_over_everyone_is_a_transformer(seed):
    x, layer = table(2, 7, 6), make("transformer")
    q, k, v = (part(x).view(2, 7, 3, 4).transpose(1, 2) for part in (layer.query, layer.key, layer.value))
    out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 7, 12)
    own = layer.own(x)
    beta = layer.gate(torch.cat([out, own, out - own], -1)).sigmoid()
    torch.testing.assert_close(layer(x, Everyone()), beta * own + (1 - beta) * out, rtol=1e-10, atol=1e-10)
    flat = layer(x.flatten(0, 1), Segments([7, 7]))
    torch.testing.assert_close(flat.view(2, 7, 12), layer(x, Everyone()), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["gat", "gatv2"])
def test_gat_over_everyone_is_gat_on_the_complete_graph(name, seed):
    x, layer = table(9, 6), make(name)
    torch.testing.assert_close(layer(x, Everyone()), layer(x, Graph.complete(9)), rtol=1e-10, atol=1e-10)


# Odd graphs


@every
def test_who_hears_nobody_hears_only_themselves(name, graph):
    """No NaN, and nothing from anybody else; with loops, attention on oneself alone."""
    x, layer = table(10, 6), make(name)
    alone = layer(x, Graph.empty(10))
    assert alone.isfinite().all()
    lonely = (graph.degree() == 0).nonzero().squeeze(1)
    torch.testing.assert_close(layer(x, graph)[lonely], alone[lonely], rtol=1e-10, atol=1e-10)
    if name.startswith("gat,") or name == "gat":
        z = (x @ layer.weight).view(10, 3, 4)
        z = z.mean(1) if not layer.concat else z.flatten(1)
        torch.testing.assert_close(alone, z + layer.bias, rtol=1e-10, atol=1e-10)


@every
def test_no_nodes_at_all(name):
    layer = make(name)
    out = layer(table(0, 6).requires_grad_(), Graph.empty(0))
    assert out.shape[0] == 0 and out.shape[1] == layer(table(1, 6), Graph.empty(1)).shape[1]
    out.sum().backward()


@every
def test_an_edge_given_twice_counts_twice(name, seed):
    """For sums over edges, as if its weight were 2; for the rest, as two neighbours who are alike."""
    x, layer = table(3, 6), make(name)
    twice = Graph.from_edges([0, 0, 1, 2], [2, 2, 2, 0], nodes=3)
    once = Graph.from_edges([0, 1, 2], [2, 2, 0], nodes=3)
    out = layer(x, twice)
    if name in ("messages, max",):
        torch.testing.assert_close(out, layer(x, once))
    else:
        assert not torch.allclose(out[2], layer(x, once)[2])
        if "median" not in name:
            weighted = once.with_edges(weight=torch.tensor([2.0, 1.0, 1.0], dtype=DOUBLE))
            torch.testing.assert_close(out, layer(x, weighted), rtol=1e-10, atol=1e-10)


@every
def test_a_batch_of_graphs_is_each_alone(name, graph):
    layer, other = make(name), Graph.from_edges([0, 1, 1, 3], [1, 0, 2, 2], nodes=5)
    x, y = table(10, 6), table(5, 6)
    both = layer(torch.cat([x, y]), Graph.batch([graph, other]))
    apart = torch.cat([layer(x, graph), layer(y, other)])
    torch.testing.assert_close(both, apart, rtol=1e-10, atol=1e-10)


@every
def test_many_tables_over_one_graph(name, graph):
    layer, x = make(name), table(2, 3, 10, 6)
    together = layer(x, graph)
    assert together.shape[:3] == (2, 3, 10)
    torch.testing.assert_close(together[1, 2], layer(x[1, 2], graph), rtol=1e-10, atol=1e-10)


@every
def test_derivatives(name, graph):
    layer, small = make(name), graph.subgraph([2, 3, 4, 5, 6])
    x = table(5, 6).requires_grad_()
    names = [n for n, _ in layer.named_parameters()]

    def function(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x, small))

    assert torch.autograd.gradcheck(function, (x, *layer.parameters()))


@pytest.mark.parametrize(
    "layer",
    [
        nn.GATConv(6, 4, 2, edge_features=3),
        nn.GATv2Conv(6, 4, 2, edge_features=3),
        nn.GraphTransformerConv(6, 4, 2, edge_features=3),
        nn.MessagePassing(nn.Jointly(Linear(15, 4))),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_edge_features_get_gradients(layer, graph):
    small = graph.subgraph([2, 3, 4, 5, 6])
    layer, x, e = layer.to(DOUBLE), table(5, 6), table(small.edges, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda e: layer(x, small, e), (e,))
    order = torch.randperm(small.edges)  # edges listed in another order, with their features, change nothing
    shuffled = Graph.from_edges(small.source[order], small.target[order], nodes=5)
    torch.testing.assert_close(layer(x, shuffled, e[order]), layer(x, small, e), rtol=1e-10, atol=1e-10)


def test_a_similarity_that_learns_is_the_layers(graph):
    scale = torch.nn.Parameter(torch.ones(2))
    layer = nn.GraphTransformerConv(6, 4, 2, similarity=Softmax(scale))
    layer(table(10, 6).float(), graph).square().sum().backward()
    assert dict(layer.named_parameters())["scale"] is scale and scale.grad.abs().sum() > 0
    layer.reset_parameters()
    with pytest.raises(TypeError, match=r"GraphTransformerConv: .* holds a parameter, weight"):
        nn.GraphTransformerConv(6, 4, similarity=Additive(weight=torch.nn.Parameter(torch.ones(4))))


@every
def test_a_sample_with_all_neighbours_is_exact(name, graph):
    """The last layer of a sample, fed with the nodes it names, gives the seeds what the whole graph would."""
    if "gcn" in name:
        pytest.skip("normalises by degrees that a sample does not know; see the next test")
    layer, x, seeds = make(name), table(10, 6), [7, 2, 5]
    drawn = graph.sample(seeds, [-1])
    (last,) = drawn.layers
    out = layer(x[drawn.nodes], last)
    torch.testing.assert_close(out, layer(x, graph)[seeds], rtol=1e-10, atol=1e-10)
    if "gat" not in name:  # which hear themselves, so that speakers and listeners must be the same
        pair = layer((x[drawn.nodes], x[drawn.nodes][:3]), last)
        torch.testing.assert_close(pair, out, rtol=1e-10, atol=1e-10)


def test_a_sample_of_a_graph_normalised_before(graph):
    x, layer = table(10, 6), make("gcn")
    sampled = nn.GCNConv(6, 4, normalize=None, self_loops=False).to(DOUBLE)
    sampled.load_state_dict(layer.state_dict())
    whole = graph.with_edges(weight=torch.ones(30, dtype=DOUBLE)).with_self_loops().normalized()
    drawn = whole.sample([7, 2, 5], [-1])
    found = sampled(x[drawn.nodes], drawn.layers[0])
    torch.testing.assert_close(found, layer(x, graph)[[7, 2, 5]], rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match=r"bipartite.*normalized\(\)"):
        layer(x[drawn.nodes], drawn.layers[0])


# α, for pictures


@pytest.mark.parametrize("name", ATTENDING)
def test_attention_is_what_was_used(name, graph):
    x, layer = table(10, 6), make(name)
    alpha = layer.attention(x, graph)
    loops = alpha.edges - graph.edges
    assert alpha.weight.shape == (3, graph.edges + loops)
    assert torch.equal(alpha.source[:30], graph.source) and torch.equal(alpha.target[:30], graph.target)
    assert torch.equal(alpha.source[30:], alpha.target[30:])
    total = alpha.degree(weighted=True)
    heard = alpha.degree() > 0
    torch.testing.assert_close(total[:, heard], torch.ones_like(total[:, heard]), rtol=1e-10, atol=0)
    if hasattr(layer, "weight"):
        value = x @ layer.weight
    else:
        value = layer.speaker(x) if hasattr(layer, "speaker") else layer.value(x)
    out = alpha.propagate(value.view(10, 3, 4).transpose(0, 1)).transpose(0, 1)
    out = out.flatten(1) if layer.concat else out.mean(1)
    if hasattr(layer, "bias"):
        out = out + layer.bias
    elif layer.gate is None:
        out = out + layer.own(x)
    else:
        own = layer.own(x)
        beta = layer.gate(torch.cat([out, own, out - own], -1)).sigmoid()
        out = beta * own + (1 - beta) * out
    torch.testing.assert_close(out, layer(x, graph), rtol=1e-10, atol=1e-10)


def test_attention_with_edge_features_and_in_any_mode(graph):
    layer, x, e = nn.GATConv(6, 4, 2, edge_features=3, dropout=0.5).to(DOUBLE), table(10, 6), table(30, 3)
    alpha = layer.attention(x, graph, e)
    value = (x @ layer.weight).view(10, 2, 4).transpose(0, 1)
    out = alpha.propagate(value).transpose(0, 1).flatten(1) + layer.bias
    torch.testing.assert_close(out, layer.eval()(x, graph, e), rtol=1e-10, atol=1e-10)
    assert not alpha.weight.requires_grad
    with torch.inference_mode():
        torch.testing.assert_close(layer.attention(x, graph, e).weight, alpha.weight)
    with pytest.raises(TypeError, match="need a Graph"):
        nn.GATConv(6, 4).to(DOUBLE).attention(x, Everyone())


def test_dropout_of_attention_keeps_the_mean(seed):
    """Over many draws the layer in training is the layer in eval, within five standard errors."""
    layer, x = nn.GATConv(6, 4, 2, dropout=0.5).to(DOUBLE), table(8, 6)
    graph = Graph.complete(8)
    with torch.no_grad():
        draws = torch.stack([layer(x, graph) for _ in range(2000)])
        error = (draws.mean(0) - layer.eval()(x, graph)).abs() / (draws.std(0) / 2000**0.5)
    assert error.max() < 5.5 and error.max() > 0


# What GCN remembers


def test_normalised_graphs_are_kept_and_never_stale(graph):
    layer, x = make("gcn"), table(10, 6)
    assert layer.adjacency(graph) is layer.adjacency(graph)
    weight = torch.rand(30, dtype=DOUBLE) + 0.1
    weighted = graph.with_edges(weight=weight)
    before, kept = layer(x, weighted), layer.adjacency(weighted)
    assert kept is layer.adjacency(weighted)
    weight.mul_(torch.rand(30, dtype=DOUBLE))  # written to in place
    assert layer.adjacency(weighted) is not kept
    again = layer(x, graph.with_edges(weight=weight.clone()))
    torch.testing.assert_close(layer(x, weighted), again, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(before, again)


def test_learned_weights_are_not_kept(graph):
    layer, x = make("gcn"), table(10, 6)
    weight = (torch.rand(30, dtype=DOUBLE) + 0.1).requires_grad_()
    weighted = graph.with_edges(weight=weight)
    for _ in range(2):  # a kept graph of autograd would not survive the first backward pass
        layer(x, weighted).square().sum().backward()
    assert weight.grad.abs().sum() > 0 and weighted not in _KEPT
    assert torch.autograd.gradcheck(lambda w: layer(x, graph.with_edges(weight=w)), (weight,))


def test_what_is_kept_dies_with_the_graph(seed):
    graph = Graph.from_edges([0, 1], [1, 0], nodes=2)
    make("gcn")(table(2, 6), graph)
    assert graph in _KEPT
    dead = weakref.ref(graph)
    del graph
    gc.collect()
    assert dead() is None


def test_first_seen_in_inference_mode(graph):
    for name in LAYERS:
        layer, x = make(name), table(10, 6)
        with torch.inference_mode():
            layer(x, graph)
        layer(x, graph).sum().backward()


# Words for those who err


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda g: nn.GCNConv(6, 4)(table(10, 5), g), r"GCNConv: x has 5 features; the layer takes 6"),
        (lambda g: nn.GATConv(6, 4)(table(9, 6), g), r"GATConv: x has 9 nodes; Graph\(10 nodes.* has 10"),
        (lambda g: nn.GATConv(6, 4)(table(6), g), r"x has shape \(6,\); it takes \(\.\.\., nodes, 6\)"),
        (lambda g: nn.GATConv(6, 4)((table(10, 6),) * 2, g), r"self_loops=False"),
        (lambda g: nn.GATConv(6, 4)((table(10, 6),) * 3, g), r"x is 3 tables; it takes one, or"),
        (lambda g: nn.GATConv(6, 4)(table(10, 6), g, table(30, 2)), r"built without; say how wide"),
        (lambda g: nn.GATConv(6, 4, edge_features=2)(table(10, 6), g), r"edge_features=2; pass \(30, 2\)"),
        (lambda g: nn.GATv2Conv(6, 4, edge_features=2)(table(10, 6), g, table(29, 2)), r"takes \(30, 2\)"),
        (lambda g: nn.GraphConv(6, 4, aggregate="medain"), r"did you mean 'median'"),
        (lambda g: nn.GCNConv(6, 4, normalize="both"), r"takes one of 'symmetric', 'row'"),
        (lambda g: nn.GATConv(6, 0), r"GATConv\(dim=0\): takes a whole number"),
        (lambda g: nn.GATConv(6, 4, dropout=1.5), r"GATConv\(dropout=1.5\)"),
        (lambda g: nn.GraphTransformerConv(6, 4, skip="sum"), r"takes 'linear', 'gated' or None"),
        (lambda g: nn.GATv2Conv((6, 5), 4, shared=True), r"one weight takes one width"),
        (
            lambda g: nn.MessagePassing(lambda i, j: j[:3])(table(10, 6), g),
            r"message returned shape \(3, 6\)",
        ),
        (lambda g: nn.MessagePassing(lambda i, j, e: e)(table(10, 6), g, table(3, 2)), r"\(30, width\)"),
        (lambda g: nn.GraphConv(6, 4)(table(2, 6), Graph.from_edges([0], [2], sources=2, targets=3)), "pair"),
    ],
)
def test_errors_teach(graph, call, says):
    with pytest.raises(ValueError, match=says):
        call(graph)


def test_wrong_types(graph):
    with pytest.raises(TypeError, match="message=…"):
        nn.MessagePassing("sum")
    with pytest.raises(TypeError, match="graph must be a Graph"):
        nn.GATConv(6, 4)(torch.randn(10, 6), torch.zeros(2, 3))
    with pytest.raises(TypeError, match="x must be a tensor"):
        nn.GATConv(6, 4)("words", graph)
    ends = r"graph must be a Graph.*, got a tensor of shape \(2, 30\); .*from_edge_index\(edges, nodes=…\)\.$"
    for layer in (nn.MessagePassing(lambda i, j: j), nn.GCNConv(6, 4)):
        with pytest.raises(TypeError, match=f"^{type(layer).__name__}: {ends}"):
            layer(table(10, 6), graph.to_edge_index())
    with pytest.raises(TypeError, match="MessagePassing: graph must be a Graph, got None"):
        nn.MessagePassing(lambda i, j: j)(table(10, 6), None)
    with pytest.raises(TypeError, match=r"readout\(\): graph must be a Graph.* of shape \(10,\)"):
        nn.readout(table(10, 6), torch.zeros(10))


@pytest.mark.parametrize(("heads", "dim"), [(1, 7), (2, 3), (3, 7)])
def test_gat_of_any_shape(heads, dim, seed):
    """Enough edges for the kernels that take whole rows at once, and widths that are filled up for them."""
    graph = Graph.from_edges(torch.randint(300, (3000,)), torch.randint(300, (3000,)), nodes=300)
    layer, x = nn.GATConv(6, dim, heads).to(DOUBLE), table(300, 6).requires_grad_()
    z = (x @ layer.weight).view(300, heads, dim)
    adjacency, outs = graph.adjacency().double(), []
    adjacency = torch.where(torch.eye(300) * (adjacency.diagonal() == 0) > 0, 1, adjacency)
    for h in range(heads):
        scores = (z[:, h] @ layer.listener[h])[:, None] + (z[:, h] @ layer.speaker[h])[None]
        outs.append(softmax_over(F.leaky_relu(scores, 0.2), adjacency) @ z[:, h])
    expected, found = torch.cat(outs, 1) + layer.bias, layer(x, graph)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    wanted, direction = [x, *layer.parameters()], torch.randn_like(found)
    for a, b in zip(*(torch.autograd.grad(out, wanted, direction) for out in (found, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
