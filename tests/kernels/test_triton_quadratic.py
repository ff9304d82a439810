"""(q·k + c)² by features in registers, against all pairs: interpreted without a GPU, at small sizes."""

import itertools

import pytest
import torch

from heedful import Causal, Everyone, Polynomial, attend
from heedful.kernels import quadratic, sparse_operators

pytest.importorskip("triton")


@pytest.fixture
def device(device, monkeypatch):
    if device == "cpu":
        monkeypatch.setattr(sparse_operators, "on_gpu", lambda device: True)
    return device


@pytest.fixture
def small(monkeypatch):
    """Blocks and spans so short that a test has several."""
    shape_of = quadratic.shape_of
    monkeypatch.setattr(quadratic, "shape_of", lambda *sizes: shape_of(*sizes)._replace(block=16))
    monkeypatch.setattr(quadratic, "_span", lambda length, batch, shape, causal: 32)


def problem(device, n, m, d, e, dtype=torch.float32):
    q, k, v = (torch.randn(2, *shape, device=device).to(dtype) for shape in ((n, d), (m, d), (m, e)))
    return [t.requires_grad_() for t in (q, k, v)], torch.rand(2, n, device=device) + 0.3


def compare(tensors, c, causal, tolerance):
    exact = [t.detach().double().requires_grad_() for t in tensors]
    out = quadratic.quadratic_attention(*tensors, c, causal)
    expected = quadratic.composite(*exact, c.double(), causal)
    gradient = torch.randn_like(expected)
    if causal:  # the first hear so few that their weights may all be near 0, where rounding has no bound
        gradient[:, :16] = 0
    actual = [out, *torch.autograd.grad(out, tensors, gradient.to(out.dtype), retain_graph=True)]
    wanted = [expected, *torch.autograd.grad(expected, exact, gradient)]
    for x, y in zip(actual, wanted, strict=True):
        assert x.dtype == tensors[0].dtype and x.shape == y.shape
        assert (x.double() - y).norm() <= tolerance * y.norm()


@pytest.mark.parametrize(("n", "m", "d", "e"), [(70, 50, 16, 16), (33, 90, 5, 20), (40, 40, 32, 3)])
def test_everyone(seed, n, m, d, e, device, small):
    compare(*problem(device, n, m, d, e), False, 1e-4)


@pytest.mark.parametrize(("n", "d", "e"), [(90, 16, 16), (70, 5, 20)])
def test_the_past(seed, n, d, e, device, small):
    compare(*problem(device, n, n, d, e), True, 1e-4)


@pytest.mark.parametrize(("n", "d", "e"), [(450, 16, 40), (400, 20, 3)])
def test_the_past_in_spans_as_they_are(seed, n, d, e, device):
    compare(*problem(device, n, n, d, e), True, 1e-4)


def test_spans_are_whole_blocks():
    for d, e, item in itertools.product((1, 5, 16, 20, 64, 100, 128), (1, 16, 40, 64, 128), (2, 4)):
        shape = quadratic.shape_of(d, e, item)
        for causal in (False, True):
            assert quadratic._span(10_000, 3, shape, causal) % shape.block == 0


def test_half_precision(seed, device, small):
    if device == "cpu":
        pytest.skip("Triton's interpreter multiplies bfloat16 matrices as if they were integers")
    for causal in (False, True):
        compare(*problem(device, 64, 64, 16, 16, torch.bfloat16), causal, 2e-2)


def test_nobody_heard_and_second_derivatives(seed, device, small):
    (q, k, v), c = problem(device, 40, 40, 4, 4)
    with torch.no_grad():
        q[:, 7] = 0
        c[:, 7] = 0
    out = quadratic.quadratic_attention(q, k, v, c, False)
    assert (out[:, 7] == 0).all() and out.isfinite().all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), (q, k, v), retain_graph=True))
    (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    (again,) = torch.autograd.grad(
        quadratic.composite(q, k, v, c, False).square().sum(), q, create_graph=True
    )
    second, wanted = (torch.autograd.grad(g.square().sum(), k)[0] for g in (first, again))
    assert (second - wanted).norm() <= 1e-3 * wanted.norm()


def test_one_tensor_under_three_names(seed, device, small):
    (q, _, _), c = problem(device, 40, 40, 4, 4)
    out = quadratic.quadratic_attention(q, q, q, c, False).square().sum()
    plain, recorded = (
        torch.autograd.grad(out, q, retain_graph=True, create_graph=again)[0] for again in (False, True)
    )
    assert (plain - recorded).norm() <= 1e-3 * plain.norm()


@pytest.mark.parametrize("size", [1e25, torch.nan])
def test_the_past_knows_nothing_of_what_is_no_number_yet(size, seed, device, small):
    (q, k, v), c = problem(device, 90, 90, 4, 4)
    with torch.no_grad():
        before = quadratic.quadratic_attention(q, k, v, c, True)
        k[:, 41] = size
        after = quadratic.quadratic_attention(q, k, v, c, True)
    assert torch.equal(before[:, :41], after[:, :41])


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("d", "e"), [(16, 16), (32, 32), (64, 64), (64, 5), (100, 16), (8, 128), (128, 128), (128, 48)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large(seed, d, e, dtype, causal):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    tensors, c = problem("cuda", 5000, 5000, d, e, dtype)
    compare(tensors, c, causal, 1e-4 if dtype is torch.float32 else 2e-2)
    first, second = (quadratic.quadratic_attention(*tensors, c, causal) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("constant", [1.0, 0.0, -0.5])
@pytest.mark.parametrize("neighbors", [Everyone(), Causal()], ids=str)
def test_attend(seed, neighbors, constant, device):
    """The strategies run the kernels there, at any length of the rows, and agree with the definition."""
    sizes = torch.logspace(-25, 25, 40, device=device)[:, None]  # squares of most are no float32
    q, k, v = (torch.randn(3, 2, 2, 40, 8, device=device)).unbind()
    options = {"similarity": Polynomial(2, constant=constant), "neighbors": neighbors}
    strategy = "factored" if isinstance(neighbors, Everyone) else "scan"
    out = attend(q * sizes, 1e17 * k, v, strategy=strategy, **options)
    wide = [x.double() for x in (q * sizes, 1e17 * k, v)]
    expected = attend(*wide, strategy="reference", **options)
    assert (out - expected).norm() <= 1e-4 * expected.norm()
