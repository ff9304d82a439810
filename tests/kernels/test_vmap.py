"""Copies under vmap: what a copy computes and drops, and its gradient from outside, are those of a copy
alone.
"""

import pytest
import torch
from torch.func import vmap

from heedful import Additive, Graph, Softmax, attend
from heedful.kernels.drop import drop, drop_positive
from heedful.training.streams import Streams


@pytest.mark.parametrize("similarity", [Additive(0.2), Softmax()], ids=repr)
@pytest.mark.parametrize("heads, dim", [(8, 8), (3, 5)])
@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_gradients_from_outside_of_edge_attention(similarity, heads, dim, rate, seed):
    """Inside vmap no tensor says that it requires a gradient."""
    graph = Graph.from_edges(*torch.randint(30, (2, 150)), nodes=30)
    width = 1 if isinstance(similarity, Additive) else dim
    q, k = torch.randn(2, 3, heads, 30, width, dtype=torch.float64)
    v = torch.randn(3, heads, 30, dim, dtype=torch.float64)
    tensors = [t.clone().requires_grad_() for t in (q, k, v)]
    seeds = torch.randint(2**62, (3,))

    def listen(q, k, v):
        out = attend(q, k, v, similarity=similarity, neighbors=graph, dropout=rate, strategy="sparse")
        return out.square().sum()

    def alone(q, k, v, number):
        torch.manual_seed(int(number))
        return listen(q, k, v)

    streams = Streams([torch.Generator().manual_seed(int(number)).get_state() for number in seeds])

    def copies(index, q, k, v):
        with streams.within(index):
            return listen(q, k, v)

    total = vmap(copies)(torch.arange(3), *tensors)
    gradients = torch.autograd.grad(total.sum(), tensors)
    for n in range(3):
        own = [t[n].detach().requires_grad_() for t in tensors]
        expected = alone(*own, seeds[n])
        torch.testing.assert_close(total[n], expected)
        for found, wanted in zip(gradients, torch.autograd.grad(expected, own), strict=True):
            torch.testing.assert_close(found[n], wanted)


@pytest.mark.parametrize("edges", [40, 6000])
@pytest.mark.parametrize("features", [7, 8, 16, 24, 64])
@pytest.mark.parametrize("copies", [2, 3, 10])
def test_weighted_sums_of_copies(copies, features, edges, seed):
    """With weights of their own and with shared ones, few edges and many, forward and backward."""
    source, target = torch.randint(50, (2, edges))
    graph = Graph.from_edges(source, target, nodes=50)
    x = torch.randn(copies, 50, features, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(copies, edges, dtype=torch.float64, requires_grad=True)
    heard = x[:, source] * weight.unsqueeze(-1)
    expected = torch.zeros_like(x).index_add(1, target, heard)
    found = vmap(lambda x, w: graph.with_edges(weight=w).propagate(x))(x, weight)
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(found)
    for a, b in zip(
        torch.autograd.grad(found, (x, weight), direction),
        torch.autograd.grad(expected, (x, weight), direction),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    shared = vmap(lambda x: graph.with_edges(weight=weight[0]).propagate(x))(x)
    torch.testing.assert_close(shared[-1], graph.with_edges(weight=weight[0]).propagate(x[-1]))


@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_large_copies_run_as_they_would_alone(rate, seed):
    """To the bit: each goes to the kernel of its own shape."""
    graph = Graph.from_edges(*torch.randint(500, (2, 3000)), nodes=500)
    listener, speaker, value = torch.randn(3, 8, 500, 1), torch.randn(3, 8, 500, 1), torch.randn(3, 8, 500, 8)
    tensors = [t.requires_grad_() for t in (listener, speaker, value)]
    states = [torch.Generator().manual_seed(seed + n).get_state() for n in range(3)]
    streams = Streams(list(states))

    def listen(q, k, v):
        return attend(q, k, v, similarity=Additive(0.2), neighbors=graph, dropout=rate)

    def copies(index, *tensors):
        with streams.within(index):
            return listen(*tensors)

    out = vmap(copies)(torch.arange(3), *tensors)
    gradients = torch.autograd.grad(out.square().sum(), tensors)
    for n in range(3):
        torch.set_rng_state(states[n])
        own = [t[n].detach().requires_grad_() for t in tensors]
        expected = listen(*own)
        assert torch.equal(out[n], expected)
        for found, wanted in zip(gradients, torch.autograd.grad(expected.square().sum(), own), strict=True):
            assert torch.equal(found[n], wanted)
    if not rate:  # vmap over grad: what the backward pass needs goes through vmap, too
        inner = vmap(torch.func.grad(lambda *t: listen(*t).square().sum(), argnums=(0, 1, 2)))(
            *[t.detach() for t in tensors]
        )
        for found, wanted in zip(inner, gradients, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.fixture(params=[drop, drop_positive], ids=lambda way: way.__name__)
def way(request):
    """Dropout, and dropout after a ReLU: a function, and its gradient of ones."""

    def gradient(x, rate, number):
        ones = torch.ones_like(x) if request.param is drop else (x > 0).to(x.dtype)
        return drop(ones, rate, number)

    return request.param, gradient


def test_copies_drop_what_they_would_drop_alone(way, seed):
    drop, gradient_of = way
    x, numbers = torch.randn(4, 5, 7), torch.randint(2**62, (4, 1))
    x.requires_grad_()
    for turned in (False, True):  # as the gradient of a batched product lies, and as the copies do
        out = vmap(lambda x, number: drop(x, 0.4, number))(x, numbers)
        weights = torch.ones(5, 4, 7).transpose(0, 1) if turned else torch.ones(4, 5, 7)
        (gradient,) = torch.autograd.grad(out, x, weights)
        for n in range(4):
            assert torch.equal(out[n], drop(x[n], 0.4, numbers[n]))
            assert torch.equal(gradient[n], gradient_of(x[n], 0.4, numbers[n]))
    shared = vmap(lambda number: drop(x[0], 0.4, number))(numbers)
    moved = vmap(lambda x: drop(x, 0.4, numbers[2]), in_dims=1)(x.transpose(0, 1))
    between = vmap(lambda x: drop(x, 0.4, numbers[1]), in_dims=1)(x)  # copies lie between rows and features
    (gradient,) = torch.autograd.grad(between, x, torch.randn(4, 5, 7).sign().transpose(0, 1))
    assert torch.equal(
        gradient.abs(), torch.stack([gradient_of(x[:, n], 0.4, numbers[1]) for n in range(5)], 1)
    )
    for n in range(4):
        assert torch.equal(shared[n], drop(x[0], 0.4, numbers[n]))
        assert torch.equal(moved[n], drop(x[n], 0.4, numbers[2]))


def test_copies_of_copies_drop_what_they_would_drop_alone(way, seed):
    drop, gradient_of = way
    x, numbers = torch.randn(2, 3, 5, requires_grad=True), torch.randint(2**62, (2, 3, 1))
    out = vmap(vmap(lambda x, number: drop(x, 0.4, number)))(x, numbers)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    for n in range(2):
        for m in range(3):
            assert torch.equal(out[n, m], drop(x[n, m], 0.4, numbers[n, m]))
            assert torch.equal(gradient[n, m], gradient_of(x[n, m], 0.4, numbers[n, m]))


def test_shared_numbers_hear_of_every_copy(way, seed):
    drop, gradient_of = way
    x, numbers = torch.randn(6, dtype=torch.float64, requires_grad=True), torch.randint(2**62, (3, 1))
    (found,) = torch.autograd.grad(vmap(lambda number: drop(x, 0.5, number))(numbers).sum(), x)
    torch.testing.assert_close(found, sum(gradient_of(x, 0.5, number) for number in numbers))
    assert torch.autograd.gradgradcheck(
        lambda x: vmap(lambda number: drop(x.square(), 0.5, number))(numbers), (x,)
    )


def test_dropping_can_be_differentiated_by_torch_func(way, seed):
    drop, gradient_of = way
    x, number = torch.randn(6, dtype=torch.float64), torch.randint(2**62, (1,))
    jacobian = torch.func.jacrev(lambda x: drop(x, 0.5, number))(x)
    torch.testing.assert_close(jacobian, torch.diag(gradient_of(x, 0.5, number)))
    torch.testing.assert_close(torch.func.jacfwd(lambda x: drop(x, 0.5, number))(x), jacobian)
