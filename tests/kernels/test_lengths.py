"""Powers of two that rows are divided by, so that no power overflows: in torch, and by kernels to the bit."""

import pytest
import torch

from heedful.kernels import lengths, sparse_operators

CONSTANTS, WIDTHS, TYPES = [1.0, 0.0, -0.3, 4e6], [1, 3, 40], [torch.float32, torch.bfloat16]


def drawn(d, dtype, seed):
    scale = 10.0 ** (seed % 37 - 18)  # the largest whose product float32 holds
    q, k = ((scale * torch.randn(2, 3, rows, d)).to(dtype) for rows in (70, 900))
    q[0, 0, :5], k[1, 2] = 0, 0
    return q.requires_grad_(), k.requires_grad_()


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("degree", [2, 5])
def test_products_fit_and_none_is_rounded(degree, dtype, d, constant, seed):
    q, k = drawn(d, dtype, seed)
    short_q, short_k, constants = lengths.shortened(q, k, constant, degree)
    assert short_q.dtype == short_k.dtype == dtype and constants.dtype == torch.float32
    bound = short_q.double().norm(dim=-1) * short_k.double().norm(dim=-1).amax(-1, keepdim=True)
    room = 2.0 ** (lengths.ROOM // degree)
    assert (bound <= room).all() and (constants.abs() <= 1).all()  # so |q·k + c| is little more
    shortest = 4.0 ** -(lengths.margin(d) + 1) / room  # and is not small but by chance
    q_top, k_top = short_q.abs().amax(-1), short_k.abs().amax((-2, -1))[..., None]
    assert (torch.maximum(q_top * k_top, constants.abs()) >= shortest)[bound + constants.abs() > 0].all()
    if constant:
        products, shorter = q.double() @ k.double().mT, short_q.double() @ short_k.double().mT
        factors = torch.exp2((constants.double() / constant).log2().round())  # powers of two, as they are
        lost = (shorter - products * factors[..., None]).abs()
        assert (lost <= 2.0**-100).all()  # beside a constant that is so much larger


@pytest.mark.parametrize("constant", CONSTANTS)
@pytest.mark.parametrize("d", WIDTHS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_kernels_find_the_same(dtype, d, constant, seed, device, monkeypatch):
    pytest.importorskip("triton")
    q, k = (x.detach() for x in drawn(d, dtype, seed))
    found = []
    for by_kernels, place in ((False, "cpu"), (True, device)):
        monkeypatch.setattr(sparse_operators, "on_gpu", lambda device, answer=by_kernels: answer)
        leaves = [x.to(place).requires_grad_() for x in (q, k)]
        short_q, short_k, constants = lengths.shortened(*leaves, constant, 2)
        gradients = torch.autograd.grad(short_q.sum() + short_k.sum(), leaves)
        found.append([x.cpu() for x in (short_q, short_k, constants, *gradients)])
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("by_kernels", [False, True])
def test_numbers_of_any_size(by_kernels, device, monkeypatch):
    """Down to the smallest that float32 has, and up to nearly the largest: all finite, and none lost."""
    pytest.importorskip("triton")
    monkeypatch.setattr(sparse_operators, "on_gpu", lambda device: by_kernels)
    sizes = torch.tensor([1e-45, 1e-38, 1e-30, 1.0, 1e18, 2e37], device=device)
    q = k = sizes[:, None, None].expand(6, 20, 8)
    q, k, _ = lengths.shortened(q, k, 0.0, 2)
    assert (q > 0).all() and (q[1:] > 0.1).all() and (q <= 1).all()
    room = 2.0**30
    assert (k > 0).all() and (k[1:] > 0.1 / room).all() and (k[:5] <= room).all()


@pytest.mark.parametrize("by_kernels", [False, True])
@pytest.mark.parametrize("size", [1e18, 3e38, torch.inf, torch.nan])
def test_one_key_out_of_proportion_leaves_the_others_as_they_are(size, by_kernels, device, monkeypatch):
    """Nobody need hear it: it may be a future one, or memory that nobody has written to."""
    pytest.importorskip("triton")
    monkeypatch.setattr(sparse_operators, "on_gpu", lambda device: by_kernels)
    q, k = torch.randn(2, 1, 30, 8, device=device)
    k[:, 7] = size
    short_q, short_k, constants = lengths.shortened(q, k, 1.0, 2)
    weights = (short_q @ short_k[:, :7].mT + constants[..., None]).square()
    assert (weights.sum(-1) > 1e-30).all() and short_q.isfinite().all() and constants.isfinite().all()
