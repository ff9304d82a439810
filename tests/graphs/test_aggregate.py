"""Every aggregation against a loop over nodes in plain torch, with gradients, ties, far offsets and NaN."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from heedful.graphs import Graph

KINDS = {
    "sum": lambda heard: heard.sum(0),
    "mean": lambda heard: heard.mean(0),
    "max": lambda heard: heard.max(0).values,
    "min": lambda heard: heard.min(0).values,
    "median": lambda heard: heard.quantile(0.5, dim=0),
    "std": lambda heard: heard.std(0, correction=0),
}


def by_loop(graph, x, kind):
    rows = []
    for node in range(graph.targets):
        heard = x[graph.source[graph.target == node]]
        rows.append(KINDS[kind](heard) if len(heard) else torch.zeros_like(x[0]))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_loop(tangled, kind):
    graph = tangled.with_edges(weight=None)
    x = torch.randn(10, 5, dtype=torch.float64)
    torch.testing.assert_close(graph.aggregate(x, kind), by_loop(graph, x, kind))
    batch = torch.randn(2, 3, 10, 5, dtype=torch.float64)
    out = graph.aggregate(batch, kind)
    assert out.shape == (2, 3, 10, 5)
    torch.testing.assert_close(out[1, 2], by_loop(graph, batch[1, 2], kind))


@pytest.mark.parametrize("kind", KINDS)
def test_hubs_and_bipartite(seed, kind):
    source, target = torch.randint(0, 300, (600,)), torch.randint(0, 3, (600,))
    graph = Graph.from_edges(source, target, sources=300, targets=4)
    x = torch.randn(300, 3, dtype=torch.float64)
    torch.testing.assert_close(graph.aggregate(x, kind), by_loop(graph, x, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_vmap_and_compile(tangled, kind):
    graph = tangled.with_edges(weight=None)
    x = torch.randn(10, 3, dtype=torch.float64, requires_grad=True)

    def aggregate(x):
        return graph.aggregate(x, kind)

    assert gradcheck(aggregate, x, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(aggregate, x)
    many = torch.randn(4, 10, 3, dtype=torch.float64)
    torch.testing.assert_close(torch.vmap(aggregate)(many), torch.stack([aggregate(one) for one in many]))
    compiled = torch.compile(aggregate, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), aggregate(x))


@pytest.mark.parametrize("kind", ["sum", "mean"])
def test_weights_count_in_sum_and_mean(tangled, kind):
    x = torch.randn(3, 10, 4, dtype=torch.float64)
    weight = torch.rand(3, 30, dtype=torch.float64, requires_grad=True)
    graph = tangled.with_edges(weight=weight)
    A = graph.to_dense()
    total = A.sum(-1, keepdim=True)
    expected = A @ x if kind == "sum" else torch.where(total > 0, A @ x / total, 0)
    torch.testing.assert_close(graph.aggregate(x, kind), expected)
    assert gradcheck(lambda w: tangled.with_edges(weight=w).aggregate(x, kind), weight)
    silent = tangled.with_edges(weight=torch.zeros(30, dtype=torch.float64))
    assert (silent.aggregate(x, "mean") == 0).all()


@pytest.mark.parametrize("kind", ["max", "min", "median", "std"])
def test_weights_count_nowhere_else(tangled, kind):
    x = torch.randn(10, 4, dtype=torch.float64)
    assert torch.equal(tangled.aggregate(x, kind), tangled.with_edges(weight=None).aggregate(x, kind))


@pytest.mark.parametrize("kind", ["max", "min"])
def test_ties_go_to_the_lowest_number(kind):
    graph = Graph.from_edges([3, 1, 2], [0, 0, 0], nodes=4)
    x = torch.ones(4, 1, requires_grad=True)
    graph.aggregate(x, kind).sum().backward()
    assert x.grad.squeeze(1).tolist() == [0, 1, 0, 0]


def test_median_of_an_even_count():
    graph = Graph.from_edges([0, 1, 2, 3], [0, 0, 0, 0])
    x = torch.tensor([[4.0], [1.0], [3.0], [10.0]], requires_grad=True)
    out = graph.aggregate(x, "median")
    assert out[0].item() == 3.5
    out.sum().backward()
    assert x.grad.squeeze(1).tolist() == [0.5, 0, 0.5, 0]


def test_std_far_from_zero(seed):
    """Two neighbourhoods far apart from each other and from zero, in float32."""
    graph = Graph.from_edges(torch.arange(100), torch.arange(100) // 50, sources=100, targets=2)
    x = (torch.randn(100, 3) + torch.tensor([1e4, -3e4]).repeat_interleave(50)[:, None]).requires_grad_()
    precise = x.detach().double().requires_grad_()
    out, expected = graph.aggregate(x, "std"), graph.aggregate(precise, "std")
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(expected, by_loop(graph, precise, "std"))
    out[0].sum().backward()
    expected[0].sum().backward()
    torch.testing.assert_close(x.grad.double(), precise.grad, rtol=1e-4, atol=1e-6)


def test_std_of_equal_values_has_no_gradient():
    graph = Graph.from_edges([0, 1, 2, 3], [0, 0, 0, 1], nodes=4)
    x = torch.full((4, 1), 0.1, dtype=torch.float64, requires_grad=True)
    out = graph.aggregate(x, "std")
    assert (out == 0).all()
    out.sum().backward()
    assert (x.grad == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_nan_is_never_outvoted(tangled, kind):
    graph = tangled.with_edges(weight=None)
    x = torch.randn(10, 2)
    x[4, 0] = torch.nan
    out = graph.aggregate(x, kind)
    hears = (graph.to_dense() > 0)[:, 4]
    assert torch.equal(out[:, 0].isnan(), hears) and hears.any()
    assert not out[:, 1].isnan().any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_nobody_to_hear(kind, dtype):
    x = torch.ones(3, 2, dtype=dtype, requires_grad=True)
    out = Graph.empty(3).aggregate(x, kind)
    out.sum().backward()
    assert out.dtype == dtype and (out == 0).all() and (x.grad == 0).all()
    assert Graph.empty(0).aggregate(torch.ones(2, 0, 5), kind).shape == (2, 0, 5)
    assert Graph.complete(2).aggregate(torch.ones(2, 0), kind).shape == (2, 0)
    assert Graph.complete(2).aggregate(torch.ones(2, 1, dtype=dtype), kind).dtype == dtype


def test_unknown_kind_is_answered_with_the_list(tangled):
    with pytest.raises(
        ValueError, match="'average'; it takes one of 'sum', 'mean', 'max', 'min', 'median', 'std'"
    ):
        tangled.aggregate(torch.ones(10, 1), "average")
