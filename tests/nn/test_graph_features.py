"""Sparse features are dense features with the zeros left out: products, dropout, layers, gradients."""

import pytest
import torch

from heedful import Graph, nn
from heedful.nn.graph.features import as_features

DOUBLE = torch.float64


def mostly_zeros(nodes=12, width=20, dtype=DOUBLE):
    x = torch.randn(nodes, width, dtype=dtype) * (torch.rand(nodes, width) < 0.2)
    x[3] = 0  # a node that knows nothing
    return x


FORMS = {
    "graph": Graph.from_dense,
    "csr": torch.Tensor.to_sparse_csr,
    "coo": torch.Tensor.to_sparse_coo,
    "coo, not coalesced": lambda x: torch.sparse_coo_tensor(
        torch.cat([x.to_sparse_coo().indices()] * 2, 1),
        torch.cat([x.to_sparse_coo().values() / 2] * 2),
        x.shape,
    ),
}
every = pytest.mark.parametrize("form", FORMS)
LAYERS = {
    "graph conv": lambda: nn.GraphConv(20, 4),
    "graph conv, max": lambda: nn.GraphConv(20, 4, aggregate="max"),
    "gcn": lambda: nn.GCNConv(20, 4),
    "gcn, wider": lambda: nn.GCNConv(20, 30),
    "gat": lambda: nn.GATConv(20, 4, 3),
    "gatv2": lambda: nn.GATv2Conv(20, 4, 3),
    "transformer": lambda: nn.GraphTransformerConv(20, 4, 3),
}


@every
def test_products(form, seed):
    x, weight = mostly_zeros(), torch.randn(20, 5, dtype=DOUBLE, requires_grad=True)
    sparse, dense = nn.product(FORMS[form](x), weight), x @ weight
    torch.testing.assert_close(sparse, dense, rtol=1e-12, atol=1e-12)
    direction = torch.randn_like(dense)
    torch.testing.assert_close(
        *(torch.autograd.grad(out, weight, direction)[0] for out in (sparse, dense)), rtol=1e-12, atol=1e-12
    )


@every
@pytest.mark.parametrize("name", LAYERS)
def test_layers(form, name, seed):
    layer, x = LAYERS[name]().to(DOUBLE), mostly_zeros()
    graph = Graph.from_edges(torch.randint(12, (40,)), torch.randint(12, (40,)), nodes=12)
    sparse, dense = layer(FORMS[form](x), graph), layer(x, graph)
    torch.testing.assert_close(sparse, dense, rtol=1e-10, atol=1e-10)
    direction, parameters = torch.randn_like(dense), list(layer.parameters())
    for a, b in zip(
        *(torch.autograd.grad(out, parameters, direction) for out in (sparse, dense)), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_values_can_be_learned(seed):
    x, weight = mostly_zeros(), torch.randn(20, 5, dtype=DOUBLE)
    graph = Graph.from_dense(x)
    values = graph.weight.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda v: nn.product(graph.with_edges(weight=v), weight), (values,))


def test_a_layer_keeps_its_dtype(seed):
    """Features read from a file are float32, whatever the layer is."""
    sparse = Graph.from_dense(mostly_zeros(dtype=torch.float32))
    graph = Graph.complete(12)
    for dtype in (torch.bfloat16, torch.float32, torch.float64):
        assert nn.GCNConv(20, 4).to(dtype)(sparse, graph).dtype == dtype
        assert nn.GATConv(20, 4).to(dtype)(sparse, graph).dtype == dtype


def test_binary_features_need_no_values(seed):
    x = mostly_zeros() != 0
    weight = torch.randn(20, 5, dtype=DOUBLE)
    assert Graph.from_dense(x).weight is None
    torch.testing.assert_close(nn.product(Graph.from_dense(x), weight), x.double() @ weight)
    kept = nn.dropout(Graph.from_dense(x), 0.5)
    assert set(kept.weight.unique().tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("form", ["csr", "coo"])
def test_a_sparse_tensor_is_sorted_once_and_watched(form, seed):
    x = FORMS[form](mostly_zeros())
    first = as_features(x)
    assert as_features(x) is first
    (x.values() if form == "csr" else x._values()).mul_(2)
    second = as_features(x)
    assert second is not first
    torch.testing.assert_close(second.adjacency(), x.to_dense())
    assert as_features(x.clone()) is not second


def test_dropout_of_sparse_is_dropout_of_dense(seed):
    """Zeros stay zeros, drawn for or not: entry by entry the same two values with the same chances."""
    x, rate, draws = mostly_zeros(), 0.6, 4000
    sparse = Graph.from_dense(x)
    kept = torch.stack([nn.dropout(sparse, rate).adjacency() for _ in range(draws)])
    assert (kept[:, x == 0] == 0).all()
    values = torch.stack([torch.zeros_like(x), x / (1 - rate)])
    assert ((kept - values[:, None]).abs().amin(0) < 1e-12).all()
    share = (kept[:, x != 0] != 0).double().mean(0)
    assert ((share - (1 - rate)).abs() < 5.5 * (rate * (1 - rate) / draws) ** 0.5).all()


def test_dropout_modes(seed):
    layer, x = nn.Dropout(0.5), torch.ones(1000)
    assert set(layer(x).unique().tolist()) == {0.0, 2.0}
    assert layer.eval()(x) is x
    assert nn.dropout(x, 0.0) is x
    torch.manual_seed(seed)
    one = nn.dropout(x, 0.5)
    assert not torch.equal(nn.dropout(x, 0.5), one)
    torch.manual_seed(seed)
    assert torch.equal(nn.dropout(x, 0.5), one)
    for wrong in (-0.1, 1.0, 2.0):
        with pytest.raises(ValueError, match=r"takes a share"):
            nn.dropout(x, wrong)
        with pytest.raises(ValueError, match=r"takes a share"):
            nn.Dropout(wrong)


def test_dropout_under_transformations(seed):
    x = torch.ones(6, 100)
    drawn = torch.func.vmap(lambda row: nn.dropout(row, 0.5), randomness="different")(x)
    assert set(drawn.unique().tolist()) == {0.0, 2.0}
    gradient = torch.func.grad(lambda row: nn.dropout(row, 0.5).sum())(x)
    assert set(gradient.unique().tolist()) == {0.0, 2.0}


def test_errors_teach(seed):
    with pytest.raises(TypeError, match=r"x has 2 dimensions in layout torch\.sparse_csc"):
        nn.product(mostly_zeros().to_sparse_csc(), torch.randn(20, 5, dtype=DOUBLE))
    with pytest.raises(TypeError, match="dense or sparse, or a Graph"):
        nn.product([[1.0]], torch.randn(1, 5))
    with pytest.raises(ValueError, match="x has 20 features; the layer takes 21"):
        nn.GCNConv(21, 4)(Graph.from_dense(mostly_zeros()), Graph.complete(12))


@pytest.mark.parametrize("outputs", [1, 7, 16, 20])
@pytest.mark.parametrize("shape", [(9, 5), (2, 9, 5), (0, 5)])
def test_products_of_copies(shape, outputs, seed):
    """Under vmap over weights, over both, and over features; second derivatives, too."""
    x, weight = torch.randn(3, *shape, dtype=DOUBLE), torch.randn(3, 5, outputs, dtype=DOUBLE)
    x.requires_grad_()
    weight.requires_grad_()
    wanted = torch.stack([a @ b for a, b in zip(x, weight, strict=True)])
    cases = [
        ((0, 0), x, weight, wanted),
        ((None, 0), x[0], weight, x[:1] @ weight.view(3, *[1] * (len(shape) - 2), 5, -1)),
    ]
    cases.append(((0, None), x, weight[0], x @ weight[0]))
    for dims, a, b, expected in cases:
        found = torch.vmap(nn.product, dims)(a, b)
        torch.testing.assert_close(found, expected)
        if x.numel():
            results = []
            for out in (found, expected):
                first = torch.autograd.grad(
                    out.square().sum(), [x, weight], create_graph=True, retain_graph=True
                )
                results.append(
                    [
                        *first,
                        *torch.autograd.grad(
                            sum(t.square().sum() for t in first), [x, weight], retain_graph=True
                        ),
                    ]
                )
            for one, other in zip(*results, strict=True):
                torch.testing.assert_close(one, other)
