"""Dropout of attention weights: the mask of `keep_mask` by pair and head, the same backward."""

import pytest
import torch

from heedful.kernels.drop_pairs import drop_pairs
from heedful.kernels.dropout import keep_mask


def masked(weights, rate, seed, first, keys):
    *lead, rows, columns = weights.shape
    head = torch.arange(torch.Size(lead).numel()).view(*lead, 1, 1)
    pair = (first[0] + torch.arange(rows))[:, None] * keys + first[1] + torch.arange(columns)
    return torch.where(keep_mask(seed, head, pair, rate), weights / (1 - rate), 0)


@pytest.mark.parametrize("lead", [(), (1,), (2, 3), (0, 3)])
@pytest.mark.parametrize(
    "rows, columns, first, keys", [(1, 1, (0, 0), 1), (5, 7, (3, 2), 9), (300, 400, (0, 0), 400)]
)
def test_it_is_the_mask(lead, rows, columns, first, keys, seed):
    weights, number = torch.rand(*lead, rows, columns, dtype=torch.float64), torch.randint(2**62, (1,))
    for rate in (0.1, 0.7):
        found = drop_pairs(weights, rate, number, first, keys)
        torch.testing.assert_close(found, masked(weights, rate, number, first, keys), rtol=1e-15, atol=0)
        turned = weights.mT.contiguous().mT
        assert torch.equal(drop_pairs(turned, rate, number, first, keys), found)


def test_derivatives(seed):
    x, number = torch.rand(2, 3, 4, dtype=torch.float64, requires_grad=True), torch.randint(2**62, (1,))

    def function(x):
        return drop_pairs(x.square(), 0.4, number, (1, 0), 4)

    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,))
