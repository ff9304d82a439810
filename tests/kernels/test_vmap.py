"""Copies under vmap: what a copy computes and drops, and its gradient from outside, are those of a copy
alone.
"""

import pytest
import torch
from torch.func import vmap

from heedful import Additive, Graph, Softmax, attend
from heedful.kernels.drop import drop
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


def test_copies_drop_what_they_would_drop_alone(seed):
    x, numbers = torch.randn(4, 5, 7), torch.randint(2**62, (4, 1))
    x.requires_grad_()
    out = vmap(lambda x, number: drop(x, 0.4, number))(x, numbers)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    for n in range(4):
        assert torch.equal(out[n], drop(x[n], 0.4, numbers[n]))
        assert torch.equal(gradient[n], drop(torch.ones(5, 7), 0.4, numbers[n]))
    shared = vmap(lambda number: drop(x[0], 0.4, number))(numbers)
    moved = vmap(lambda x: drop(x, 0.4, numbers[2]), in_dims=1)(x.transpose(0, 1))
    for n in range(4):
        assert torch.equal(shared[n], drop(x[0], 0.4, numbers[n]))
        assert torch.equal(moved[n], drop(x[n], 0.4, numbers[2]))


def test_copies_of_copies_drop_what_they_would_drop_alone(seed):
    x, numbers = torch.randn(2, 3, 5, requires_grad=True), torch.randint(2**62, (2, 3, 1))
    out = vmap(vmap(lambda x, number: drop(x, 0.4, number)))(x, numbers)
    (gradient,) = torch.autograd.grad(out.sum(), x)
    for n in range(2):
        for m in range(3):
            assert torch.equal(out[n, m], drop(x[n, m], 0.4, numbers[n, m]))
            assert torch.equal(gradient[n, m], drop(torch.ones(5), 0.4, numbers[n, m]))


def test_shared_numbers_hear_of_every_copy(seed):
    x, numbers = torch.randn(6, dtype=torch.float64, requires_grad=True), torch.randint(2**62, (3, 1))
    (found,) = torch.autograd.grad(vmap(lambda number: drop(x, 0.5, number))(numbers).sum(), x)
    torch.testing.assert_close(found, sum(drop(torch.ones_like(x), 0.5, number) for number in numbers))
    assert torch.autograd.gradgradcheck(
        lambda x: vmap(lambda number: drop(x.square(), 0.5, number))(numbers), (x,)
    )


def test_dropping_can_be_differentiated_by_torch_func(seed):
    x, number = torch.randn(6, dtype=torch.float64), torch.randint(2**62, (1,))
    jacobian = torch.func.jacrev(lambda x: drop(x, 0.5, number))(x)
    torch.testing.assert_close(jacobian, torch.diag(drop(torch.ones_like(x), 0.5, number)))
    torch.testing.assert_close(torch.func.jacfwd(lambda x: drop(x, 0.5, number))(x), jacobian)
