"""Equal weights give equal outputs and gradients: torch, PyTorch Geometric, scipy."""

from __future__ import annotations

import pytest
import scipy.sparse
import torch
from torch.nn import functional as F

import heedful
from heedful import Additive, Causal, Everyone, Graph, Mask, Polynomial, Softmax, Uniform, Window
from heedful.attention.strategies import STRATEGIES

from .cases import error

TIGHT = 1e-10


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def assert_same(ours, theirs, leaves, tolerance: float = TIGHT):
    """Outputs and the gradients of a random projection of them, relative to their norm or, where they cancel
    (a key's bias moves all scores of a row alike), to 1."""
    assert ours.shape == theirs.shape
    assert error(ours.detach(), theirs.detach()) <= tolerance
    weight = torch.randn_like(ours)
    found, wanted = (
        torch.autograd.grad(out, leaves, weight, allow_unused=True, retain_graph=True)
        for out in (ours, theirs)
    )
    for leaf, got, expected in zip(leaves, found, wanted, strict=True):
        got, expected = (torch.zeros_like(leaf) if x is None else x for x in (got, expected))
        assert error(got, expected, floor=1.0) <= tolerance


# torch

DENSE = ["reference", "fused", "tiled", "sparse"]


@pytest.mark.parametrize("strategy", DENSE)
class TestScaledDotProduct:
    def inputs(self, key_heads=4, queries=9, keys=9):
        return double(2, 4, queries, 8), double(2, key_heads, keys, 8), double(2, key_heads, keys, 5)

    def test_full(self, strategy, seed):
        leaves = self.inputs(keys=12)
        assert_same(
            heedful.attend(*leaves, strategy=strategy), F.scaled_dot_product_attention(*leaves), leaves
        )

    def test_causal_with_equal_lengths(self, strategy, seed):
        leaves = self.inputs()
        theirs = F.scaled_dot_product_attention(*leaves, is_causal=True)
        assert_same(heedful.attend(*leaves, neighbors=Causal(), strategy=strategy), theirs, leaves)

    def test_boolean_mask(self, strategy, seed):
        leaves = self.inputs(keys=12)
        for shape in ((9, 12),) if strategy == "sparse" else ((9, 12), (4, 9, 12), (2, 1, 9, 12)):
            allowed = (torch.rand(shape) < 0.5) | (
                torch.arange(12) == 0
            )  # torch gives NaN where nobody is heard
            theirs = F.scaled_dot_product_attention(*leaves, attn_mask=allowed)
            assert_same(heedful.attend(*leaves, neighbors=Mask(allowed), strategy=strategy), theirs, leaves)

    def test_float_mask_of_relative_positions(self, strategy, seed):
        leaves, table = self.inputs(keys=12), double(4, 23)
        bias = torch.stack([table[:, 11 + i + 3 - torch.arange(12)] for i in range(9)], 1)
        theirs = F.scaled_dot_product_attention(*leaves, attn_mask=bias)
        ours = heedful.attend(*leaves, position=heedful.Relative(table), strategy=strategy)
        assert_same(ours, theirs, (*leaves, table))

    def test_grouped_heads(self, strategy, seed):
        for key_heads in (1, 2):
            leaves = self.inputs(key_heads=key_heads)
            theirs = F.scaled_dot_product_attention(*leaves, enable_gqa=True)
            assert_same(heedful.attend(*leaves, strategy=strategy), theirs, leaves)

    def test_scale(self, strategy, seed):
        leaves = self.inputs()
        theirs = F.scaled_dot_product_attention(*leaves, scale=0.37)
        assert_same(
            heedful.attend(*leaves, similarity=Softmax(scale=0.37), strategy=strategy), theirs, leaves
        )


def test_a_float_mask_is_the_bias_of_a_complete_graph(seed):
    leaves, bias = (double(2, 3, 7, 4), double(2, 3, 7, 4), double(2, 3, 7, 5)), double(2, 3, 7, 7)
    graph = Graph.complete(7).with_edges(bias=bias.flatten(-2))
    for strategy in ("reference", "sparse"):
        ours = heedful.attend(*leaves, neighbors=graph, strategy=strategy)
        assert_same(ours, F.scaled_dot_product_attention(*leaves, attn_mask=bias), (*leaves, bias))


@pytest.mark.parametrize("causal", [False, True])
def test_multihead_attention_with_its_own_weights(causal, seed):
    layer = torch.nn.MultiheadAttention(24, 3, batch_first=True, dtype=torch.float64)
    torch.nn.init.normal_(layer.in_proj_bias)
    x = double(2, 10, 24)
    hidden = torch.ones(10, 10, dtype=torch.bool).triu(1) if causal else None
    theirs, _ = layer(x, x, x, attn_mask=hidden, need_weights=False)
    q, k, v = (
        F.linear(x, layer.in_proj_weight, layer.in_proj_bias).unflatten(-1, (3, 3, 8)).permute(2, 0, 3, 1, 4)
    )
    out = heedful.attend(q, k, v, neighbors=Causal() if causal else Everyone())
    ours = layer.out_proj(out.transpose(1, 2).flatten(-2))
    assert_same(ours, theirs, (x, *layer.parameters()))


# Aligning ends


@pytest.mark.parametrize("neighbors", [Causal(), Causal() & Window(4), Window(3), Everyone()], ids=str)
@pytest.mark.parametrize("position", [None, heedful.Alibi(), heedful.Rotary()], ids=str)
@pytest.mark.parametrize("similarity", [Softmax(), Polynomial(), Uniform()], ids=str)
def test_fewer_queries_are_the_last_rows_of_the_square_call(similarity, neighbors, position, seed):
    q, k, v = (x.detach().abs() for x in (double(2, 20, 4), double(2, 20, 4), double(2, 20, 3)))
    call = {"similarity": similarity, "neighbors": neighbors, "position": position}
    square = heedful.attend(q, k, v, **call, strategy="reference")
    for last in (1, 7, 19):
        able = heedful.explain(q[:, -last:], k, v, **call)
        for candidate in able.candidates:
            if candidate.reason is None:
                out = heedful.attend(q[:, -last:], k, v, **call, strategy=candidate.name)
                assert error(out, square[:, -last:]) <= 1e-9, candidate.name


# Graphs


@pytest.mark.parametrize(
    "similarity", [Softmax(), Polynomial(), Uniform(), heedful.EluKernel(), heedful.Argmax()], ids=str
)
def test_everyone_is_the_complete_graph(similarity, seed):
    leaves = tuple(
        x.detach().abs().requires_grad_()
        for x in (double(2, 3, 9, 4), double(2, 3, 9, 4), double(2, 3, 9, 5))
    )
    everyone = heedful.attend(*leaves, similarity=similarity)
    for candidate in heedful.explain(*leaves, similarity=similarity, neighbors=Graph.complete(9)).candidates:
        if candidate.reason is None:
            call = {"similarity": similarity, "neighbors": Graph.complete(9), "strategy": candidate.name}
            assert_same(heedful.attend(*leaves, **call), everyone, leaves)


@pytest.mark.parametrize("strategy", ["reference", "sparse"])
def test_an_edge_weight_is_the_exponential_of_a_bias(strategy, seed):
    x, bias = double(2, 7, 4), double(2, 49)
    graph = Graph.complete(7)
    ours = heedful.attend(x, x, x, neighbors=graph.with_edges(weight=bias.exp()), strategy=strategy)
    theirs = heedful.attend(x, x, x, neighbors=graph.with_edges(bias=bias), strategy=strategy)
    assert_same(ours, theirs, (x, bias))


def random_graph(nodes=12, edges=40):
    """(2, edges) without self-loops, some pairs twice and the last node alone."""
    source = torch.randint(nodes - 1, (edges,))
    return torch.stack([source, (source + torch.randint(1, nodes - 1, (edges,))) % (nodes - 1)])


def looped(index, nodes=12):
    """PyG's layers add a loop to every node, after the other edges."""
    return torch.cat([index, torch.arange(nodes).expand(2, nodes)], 1)


def by_head(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(0, 1)  # (heads, nodes, dim)


def doubled(layer):
    layer = layer.double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


@pytest.fixture(scope="module")
def pyg():
    return pytest.importorskip("torch_geometric.nn", reason="parity with PyTorch Geometric")


@pytest.mark.parametrize("strategy", ["reference", "sparse"])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("features", [None, 3])
def test_gat_conv(pyg, heads, loops, features, strategy, seed):
    layer = doubled(pyg.GATConv(6, 5, heads=heads, edge_dim=features, add_self_loops=loops, fill_value=0.5))
    x, index = double(12, 6), random_graph()
    edges = None if features is None else double(40, features)
    theirs = layer(x, index, edges)
    if loops:
        index = looped(index)
    graph = Graph.from_edge_index(index, nodes=12)
    leaves = [x, *layer.parameters()]
    if features is not None:
        filled = torch.cat([edges, edges.new_full((12, features), 0.5)]) if loops else edges
        projected = by_head(layer.lin_edge(filled), heads)
        graph = graph.with_edges(key=(projected * layer.att_edge[0][:, None]).sum(-1, keepdim=True))
        leaves.append(edges)
    z = by_head(layer.lin(x), heads)
    listener, speaker = ((z * a[0][:, None]).sum(-1, keepdim=True) for a in (layer.att_dst, layer.att_src))
    out = heedful.attend(listener, speaker, z, similarity=Additive(0.2), neighbors=graph, strategy=strategy)
    assert_same(out.transpose(0, 1).flatten(1) + layer.bias, theirs, leaves)


@pytest.mark.parametrize("strategy", ["reference", "sparse"])
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("features", [None, 3])
def test_gatv2_conv(pyg, heads, features, strategy, seed):
    layer = doubled(pyg.GATv2Conv(6, 5, heads=heads, edge_dim=features, add_self_loops=False))
    x, index = double(12, 6), random_graph()
    edges = None if features is None else double(40, features)
    theirs = layer(x, index, edges)
    graph = Graph.from_edge_index(index, nodes=12)
    leaves = [x, *layer.parameters()]
    if features is not None:
        graph = graph.with_edges(key=by_head(layer.lin_edge(edges), heads))
        leaves.append(edges)
    query, key = by_head(layer.lin_r(x), heads), by_head(layer.lin_l(x), heads)
    similarity = Additive(0.2, weight=layer.att[0])
    out = heedful.attend(query, key, key, similarity=similarity, neighbors=graph, strategy=strategy)
    assert_same(out.transpose(0, 1).flatten(1) + layer.bias, theirs, leaves)


@pytest.mark.parametrize("strategy", ["reference", "sparse"])
@pytest.mark.parametrize("features", [None, 3])
def test_transformer_conv(pyg, features, strategy, seed):
    layer = doubled(pyg.TransformerConv(6, 5, heads=4, edge_dim=features))
    x, index = double(12, 6), random_graph()
    edges = None if features is None else double(40, features)
    theirs = layer(x, index, edges)
    graph = Graph.from_edge_index(index, nodes=12)
    leaves = [x, *layer.parameters()]
    if features is not None:
        carried = by_head(layer.lin_edge(edges), 4)
        graph = graph.with_edges(key=carried, value=carried)
        leaves.append(edges)
    q, k, v = (by_head(linear(x), 4) for linear in (layer.lin_query, layer.lin_key, layer.lin_value))
    out = heedful.attend(q, k, v, neighbors=graph, strategy=strategy)
    assert_same(out.transpose(0, 1).flatten(1) + layer.lin_skip(x), theirs, leaves)


@pytest.mark.parametrize("weighted", [True, False])
def test_gcn_conv(pyg, weighted, seed):
    layer = doubled(pyg.GCNConv(6, 5))
    x, index = double(12, 6), random_graph()
    weight = double(40).detach().abs().requires_grad_() if weighted else torch.ones(40, dtype=torch.float64)
    graph = Graph.from_edge_index(index, nodes=12, weight=weight)
    ours = graph.with_self_loops().normalized("symmetric").propagate(layer.lin(x)) + layer.bias
    leaves = [x, *layer.parameters()] + ([weight] if weighted else [])
    assert_same(ours, layer(x, index, weight if weighted else None), leaves)


def test_sage_conv(pyg, seed):
    layer = doubled(pyg.SAGEConv(6, 5, aggr="mean"))
    x, index = double(12, 6), random_graph()
    graph = Graph.from_edge_index(index, nodes=12)
    for mean in (graph.aggregate(x, "mean"), heedful.attend(x, x, x, similarity=Uniform(), neighbors=graph)):
        assert_same(layer.lin_l(mean) + layer.lin_r(x), layer(x, index), [x, *layer.parameters()])


def test_pyg_layers_between_two_kinds_of_nodes(pyg, seed):
    layer = doubled(pyg.TransformerConv((6, 4), 5, heads=2, root_weight=False))
    speakers, listeners = double(9, 6), double(7, 4)
    index = torch.stack([torch.randint(9, (30,)), torch.randint(7, (30,))])
    q, k, v = (
        by_head(f(x), 2)
        for f, x in ((layer.lin_query, listeners), (layer.lin_key, speakers), (layer.lin_value, speakers))
    )
    graph = Graph.from_edge_index(index, nodes=(9, 7))
    ours = heedful.attend(q, k, v, neighbors=graph).transpose(0, 1).flatten(1)
    assert_same(ours, layer((speakers, listeners), index), (speakers, listeners))


# scipy


def test_propagation_is_a_sparse_product(seed):
    matrix = scipy.sparse.random_array((9, 12), density=0.3, rng=seed, format="csr")
    x = torch.randn(12, 4, dtype=torch.float64)
    product = torch.from_numpy(matrix @ x.numpy())
    assert error(Graph.from_scipy(matrix).propagate(x), product) <= TIGHT


@pytest.mark.parametrize("strategy", ["reference", "sparse"])
def test_a_weighted_mean_is_a_sparse_product_with_rows_that_sum_to_one(strategy, seed):
    matrix = scipy.sparse.random_array((9, 12), density=0.3, rng=seed, format="csr")
    x = torch.randn(12, 4, dtype=torch.float64)
    sums = matrix.sum(1)
    sums[sums == 0] = 1
    product = torch.from_numpy((matrix @ x.numpy()) / sums[:, None])
    q = torch.zeros(9, 4, dtype=torch.float64)
    ours = heedful.attend(
        q, x, x, similarity=Uniform(), neighbors=Graph.from_scipy(matrix), strategy=strategy
    )
    assert error(ours, product) <= TIGHT


def test_a_causal_mean_is_a_running_mean(seed):
    x = torch.randn(1, 50, 3, dtype=torch.float64)
    running = x.cumsum(1) / torch.arange(1, 51)[:, None]
    for strategy in ("reference", "scan", "tiled", "sparse", "toeplitz"):
        assert strategy in STRATEGIES
        out = heedful.attend(x, x, x, similarity=Uniform(), neighbors=Causal(), strategy=strategy)
        assert error(out, running) <= 1e-11, strategy
