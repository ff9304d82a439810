"""PyTorch Geometric's layers with the same weights: the same outputs, the same gradients, in float64."""

import pytest
import torch

from heedful import Graph, nn

pyg = pytest.importorskip("torch_geometric.nn")
DOUBLE = torch.float64


@pytest.fixture
def edges(seed):
    """Forty edges among twelve nodes, some repeated, no loops, some nodes that hear nobody."""
    source, target = torch.randint(0, 12, (40,)), torch.randint(3, 12, (40,))
    source = torch.where(source == target, (source + 1) % 12, source)
    source[:2], target[:2] = source[2], target[2]
    return torch.stack([source, target])


def pairs(ours, theirs, **names):
    """Copy their weights into ours, and return (our parameter, how theirs looks beside it) for each."""
    found = []
    for name, other in names.items():
        mine, other = ours.get_parameter(name.replace("__", ".")), theirs.get_parameter(other)

        def view(tensor, shape=mine.shape):
            return (tensor.T if tensor.dim() == 2 else tensor).reshape(shape)

        with torch.no_grad():
            mine.copy_(view(other))
        found.append((mine, other, view))
    assert {id(mine) for mine, *_ in found} == {id(p) for p in ours.parameters()}, "a parameter was left out"
    return found


def agree(ours, theirs, parameters, inputs):
    """The same outputs; then the same gradients by parameters and inputs."""
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    direction = torch.randn_like(ours)
    mine = torch.autograd.grad(ours, [*(p[0] for p in parameters), *inputs], direction, retain_graph=True)
    other = torch.autograd.grad(theirs, [*(p[1] for p in parameters), *inputs], direction)
    for (_, _, view), a, b in zip(parameters, mine, other, strict=False):
        torch.testing.assert_close(a, view(b), rtol=1e-9, atol=1e-10)
    for a, b in zip(mine[len(parameters) :], other[len(parameters) :], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


def inputs(*shape):
    return torch.randn(*shape, dtype=DOUBLE, requires_grad=True)


@pytest.mark.parametrize("outputs", [3, 9])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("improved", [True, False])
def test_gcn(edges, outputs, loops, improved):
    theirs = pyg.GCNConv(5, outputs, add_self_loops=loops, improved=improved).to(DOUBLE)
    ours = nn.GCNConv(5, outputs, self_loops=loops, loop_weight=2.0 if improved else 1.0).to(DOUBLE)
    parameters = pairs(ours, theirs, weight="lin.weight", bias="bias")
    x, weight = inputs(12, 5), (torch.rand(40, dtype=DOUBLE) + 0.1).requires_grad_()
    graph = Graph.from_edge_index(edges, nodes=12)
    # Without weights PyG's improved=True is not: it fills in ones after it added the loops.
    ones = torch.ones(40, dtype=DOUBLE) if improved else None
    agree(ours(x, graph), theirs(x, edges, ones), parameters, [x])
    agree(ours(x, graph.with_edges(weight=weight)), theirs(x, edges, weight), parameters, [x, weight])


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("edge_features", [None, 3])
@pytest.mark.parametrize("loops", [True, False])
def test_gat(edges, concat, edge_features, loops):
    theirs = pyg.GATConv(5, 4, heads=3, concat=concat, edge_dim=edge_features, add_self_loops=loops).to(
        DOUBLE
    )
    ours = nn.GATConv(5, 4, 3, concat=concat, edge_features=edge_features, self_loops=loops).to(DOUBLE)
    names = {"weight": "lin.weight", "listener": "att_dst", "speaker": "att_src", "bias": "bias"}
    if edge_features:
        names |= {"weight_edges": "lin_edge.weight", "edge": "att_edge"}
    parameters = pairs(ours, theirs, **names)
    graph, x = Graph.from_edge_index(edges, nodes=12), inputs(12, 5)
    e = inputs(40, 3) if edge_features else None
    agree(ours(x, graph, e), theirs(x, edges, e), parameters, [x] if e is None else [x, e])


@pytest.mark.parametrize("edge_features", [None, 3])
def test_gat_between_two_kinds_of_nodes(seed, edge_features):
    edges = torch.stack([torch.randint(9, (30,)), torch.randint(1, 6, (30,))])
    theirs = pyg.GATConv((5, 7), 4, heads=2, edge_dim=edge_features, add_self_loops=False).to(DOUBLE)
    ours = nn.GATConv((5, 7), 4, 2, edge_features=edge_features, self_loops=False).to(DOUBLE)
    names = {
        "weight": "lin_src.weight",
        "weight_listeners": "lin_dst.weight",
        "listener": "att_dst",
        "speaker": "att_src",
        "bias": "bias",
    }
    if edge_features:
        names |= {"weight_edges": "lin_edge.weight", "edge": "att_edge"}
    parameters = pairs(ours, theirs, **names)
    x, e = (inputs(9, 5), inputs(6, 7)), inputs(30, 3) if edge_features else None
    graph = Graph.from_edge_index(edges, nodes=(9, 6))
    out = theirs(x, edges, e, size=(9, 6))
    agree(ours(x, graph, e), out, parameters, [*x] if e is None else [*x, e])


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("edge_features", [None, 3])
def test_gatv2(edges, concat, shared, edge_features):
    theirs = pyg.GATv2Conv(5, 4, heads=3, concat=concat, share_weights=shared, edge_dim=edge_features).to(
        DOUBLE
    )
    ours = nn.GATv2Conv(5, 4, 3, concat=concat, shared=shared, edge_features=edge_features).to(DOUBLE)
    names = {"speaker__weight": "lin_l.weight", "speaker__bias": "lin_l.bias", "score": "att", "bias": "bias"}
    if not shared:
        names |= {"listener__weight": "lin_r.weight", "listener__bias": "lin_r.bias"}
    if edge_features:
        names |= {"edge__weight": "lin_edge.weight"}
    parameters = pairs(ours, theirs, **names)
    with torch.no_grad():
        for _, other, _ in parameters:  # biases start at zero in both
            other.copy_(torch.randn_like(other))
    parameters = pairs(ours, theirs, **names)
    graph, x = Graph.from_edge_index(edges, nodes=12), inputs(12, 5)
    e = inputs(40, 3) if edge_features else None
    agree(ours(x, graph, e), theirs(x, edges, e), parameters, [x] if e is None else [x, e])


@pytest.mark.parametrize("concat", [True, False])
@pytest.mark.parametrize("skip", ["linear", "gated", None])
@pytest.mark.parametrize("edge_features", [None, 3])
def test_transformer(edges, concat, skip, edge_features):
    theirs = pyg.TransformerConv(
        5,
        4,
        heads=3,
        concat=concat,
        beta=skip == "gated",
        root_weight=skip is not None,
        edge_dim=edge_features,
    ).to(DOUBLE)
    ours = nn.GraphTransformerConv(5, 4, 3, concat=concat, skip=skip, edge_features=edge_features).to(DOUBLE)
    names = {
        f"{mine}__{part}": f"lin_{other}.{part}"
        for mine, other in (("query", "query"), ("key", "key"), ("value", "value"), ("own", "skip"))
        for part in ("weight", "bias")
        if mine != "own" or skip
    }
    if skip == "gated":
        names |= {"gate__weight": "lin_beta.weight"}
    if edge_features:
        names |= {"edge__weight": "lin_edge.weight"}
    parameters = pairs(ours, theirs, **names)
    graph, x = Graph.from_edge_index(edges, nodes=12), inputs(12, 5)
    e = inputs(40, 3) if edge_features else None
    agree(ours(x, graph, e), theirs(x, edges, e), parameters, [x] if e is None else [x, e])


def test_transformer_between_two_kinds_of_nodes(seed):
    edges = torch.stack([torch.randint(9, (30,)), torch.randint(1, 6, (30,))])
    theirs, ours = pyg.TransformerConv((5, 7), 4, heads=2), nn.GraphTransformerConv((5, 7), 4, 2)
    theirs, ours = theirs.to(DOUBLE), ours.to(DOUBLE)
    names = {
        f"{mine}__{part}": f"lin_{other}.{part}"
        for mine, other in (("query", "query"), ("key", "key"), ("value", "value"), ("own", "skip"))
        for part in ("weight", "bias")
    }
    parameters = pairs(ours, theirs, **names)
    x = inputs(9, 5), inputs(6, 7)
    agree(ours(x, Graph.from_edge_index(edges, nodes=(9, 6))), theirs(x, edges), parameters, x)


@pytest.mark.parametrize("outputs", [3, 9])
@pytest.mark.parametrize("aggregate", ["mean", "max", "min", "sum"])
def test_graph_conv_is_sage(edges, outputs, aggregate):
    theirs = pyg.SAGEConv(5, outputs, aggr=aggregate).to(DOUBLE)
    ours = nn.GraphConv(5, outputs, aggregate=aggregate).to(DOUBLE)
    parameters = pairs(ours, theirs, weight="lin_l.weight", own="lin_r.weight", bias="lin_l.bias")
    x = inputs(12, 5)
    agree(ours(x, Graph.from_edge_index(edges, nodes=12)), theirs(x, edges), parameters, [x])


def test_graph_conv_between_two_kinds_of_nodes(seed):
    edges = torch.stack([torch.randint(9, (30,)), torch.randint(1, 6, (30,))])
    theirs, ours = pyg.SAGEConv((5, 7), 4).to(DOUBLE), nn.GraphConv((5, 7), 4).to(DOUBLE)
    parameters = pairs(ours, theirs, weight="lin_l.weight", own="lin_r.weight", bias="lin_l.bias")
    x = inputs(9, 5), inputs(6, 7)
    out = theirs(x, edges, size=(9, 6))
    agree(ours(x, Graph.from_edge_index(edges, nodes=(9, 6))), out, parameters, x)


@pytest.mark.parametrize("outputs", [3, 9])
def test_graph_conv_with_weights(edges, outputs):
    theirs, ours = pyg.GraphConv(5, outputs), nn.GraphConv(5, outputs, aggregate="sum")
    theirs, ours = theirs.to(DOUBLE), ours.to(DOUBLE)
    parameters = pairs(ours, theirs, weight="lin_rel.weight", own="lin_root.weight", bias="lin_rel.bias")
    x, weight = inputs(12, 5), inputs(40)
    graph = Graph.from_edge_index(edges, nodes=12, weight=weight)
    agree(ours(x, graph), theirs(x, edges, weight), parameters, [x, weight])


@pytest.mark.parametrize("aggregate", ["sum", "mean", "max"])
def test_message_passing_is_an_edge_convolution(edges, aggregate):
    """EdgeConv: the messages are MLP(x_i, x_j − x_i)."""
    linear = torch.nn.Linear(10, 4).to(DOUBLE)
    theirs = pyg.EdgeConv(linear, aggr=aggregate)
    ours = nn.MessagePassing(lambda i, j: linear(torch.cat([i, j - i], -1)), aggregate=aggregate)
    x = inputs(12, 5)
    mine, other = ours(x, Graph.from_edge_index(edges, nodes=12)), theirs(x, edges)
    torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
    direction = torch.randn_like(mine)
    wanted = [x, *linear.parameters()]
    mine, other = (torch.autograd.grad(out, wanted, direction) for out in (mine, other))
    for a, b in zip(mine, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)
