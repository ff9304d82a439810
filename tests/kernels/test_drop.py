"""Dropout by counting, number by number: the mask of `keep_mask`, never stored, the same backward."""

import pytest
import torch

from heedful.kernels.drop import CHUNK, drop, drop_positive
from heedful.kernels.dropout import keep_mask


def masked(x, rate, seed):
    kept = keep_mask(seed, 0, torch.arange(x.numel()), rate).view(x.shape)
    return torch.where(kept, x / (1 - rate), 0)


@pytest.mark.parametrize("shape", [(0,), (1,), (7, 5), (3, 4, 2), (2 * CHUNK + 13,), (5, CHUNK)])
def test_it_is_the_mask(shape, seed):
    x, number = torch.randn(shape, dtype=torch.float64), torch.randint(2**62, (1,))
    for rate in (0.0, 0.1, 0.6):
        torch.testing.assert_close(drop(x, rate, number), masked(x, rate, number), rtol=1e-15, atol=0)
    turned = x.transpose(0, -1)
    torch.testing.assert_close(drop(turned, 0.5, number), masked(turned, 0.5, number), rtol=1e-15, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_dtypes_stay(dtype, seed):
    x, number = torch.ones(1000, dtype=dtype), torch.randint(2**62, (1,))
    out = drop(x, 0.5, number)
    assert out.dtype == dtype and torch.equal(out, masked(x, 0.5, number).to(dtype))


def test_derivatives(seed):
    x, number = torch.randn(4, 6, dtype=torch.float64, requires_grad=True), torch.randint(2**62, (1,))

    def function(x):
        return drop(x.square(), 0.4, number)

    assert torch.autograd.gradcheck(function, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, (x,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (7, 5), (3, 4, 2), (0, 4), (2 * CHUNK + 13,), (5, CHUNK)])
def test_positive_is_after_a_relu(shape, dtype, seed):
    """Value and gradient, also of a gradient that lies otherwise, and of what is no number."""
    x, number = torch.randn(shape).to(dtype), torch.randint(2**62, (1,))
    if x.numel() > 5:
        x.view(-1)[:4] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf])
        x.view(-1)[4] = torch.nan
    for given in (x, x.mT if x.dim() > 1 else x):
        results = []
        for function in (drop_positive, lambda x, *rest: drop(torch.relu(x), *rest)):
            own = given.detach().clone(memory_format=torch.preserve_format).requires_grad_()
            out = function(own, 0.4, number)
            gradient = torch.arange(x.numel()).to(dtype).view(given.shape[::-1])
            gradient = gradient.permute(tuple(reversed(range(x.dim()))))
            results.append((out, *torch.autograd.grad(out, own, gradient)))
        for found, wanted in zip(*results, strict=True):
            kept = wanted.isfinite()  # a number that is none is dropped, or stays; its gradient is anybody's
            assert torch.equal(found[kept], wanted[kept]) and found.dtype == dtype


def test_derivatives_of_the_positive(seed):
    x, number = torch.randn(4, 6, dtype=torch.float64, requires_grad=True), torch.randint(2**62, (1,))

    def function(x):
        return drop_positive(x.pow(3), 0.4, number)

    assert torch.autograd.gradcheck(function, (x,), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, (x,))


def test_chances_are_right_and_independent(seed):
    """Within five standard deviations, which six figures stray beyond once in 300,000 runs."""
    n, rate = 1 << 20, 0.6
    out = drop(torch.ones(n, dtype=torch.float64), rate, torch.randint(2**62, (1,)))
    kept = (out > 0).double()
    assert set(out.unique().tolist()) == {0.0, 1 / (1 - rate)}
    spread = (rate * (1 - rate) / n) ** 0.5
    assert abs(kept.mean() - (1 - rate)) < 5 * spread
    centred = kept - (1 - rate)
    for lag in (1, 2, 8, 64, 1433):
        together = (centred[lag:] * centred[:-lag]).mean()
        assert abs(together) < 5 * rate * (1 - rate) / (n - lag) ** 0.5


def test_threads_do_not_matter(seed):
    x, number, before = torch.randn(10 * CHUNK), torch.randint(2**62, (1,)), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = drop(x, 0.3, number)
        torch.set_num_threads(2)
        assert torch.equal(drop(x, 0.3, number), one)
    finally:
        torch.set_num_threads(before)
