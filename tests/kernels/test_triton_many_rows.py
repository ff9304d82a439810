"""Products of many rows with a small matrix on the GPU: float32's accuracy, whatever the shape."""

import pytest
import torch

from heedful import Graph
from heedful.kernels import many_rows, sparse_operators
from heedful.nn import GATConv

pytest.importorskip("triton")
SHAPES = [(300, 100, 80), (33, 16, 16), (260, 40, 264), (1, 129, 17), (200, 264, 300)]


@pytest.fixture
def device(device, monkeypatch):
    """Where kernels run, and any number of rows is many."""
    monkeypatch.setattr(many_rows, "FEWEST_ROWS", 1)
    monkeypatch.setattr(many_rows, "has_tensor_cores", lambda device: True)
    if device == "cpu":
        monkeypatch.setattr(sparse_operators, "on_gpu", lambda device: True)
    elif torch.cuda.get_device_capability(device) < (8, 0):
        pytest.skip("no tensor cores for tf32")
    return device


def problem(device, rows, inner, columns):
    shapes = (rows, inner), (inner, columns), (rows, columns)
    x, weight, gradient = (torch.randn(shape, device=device) for shape in shapes)
    return x.requires_grad_(), weight.requires_grad_(), gradient


def near(actual, expected):
    return actual.dtype == torch.float32 and (actual - expected).norm() <= 2e-6 * expected.norm()


@pytest.mark.parametrize(("rows", "inner", "columns"), SHAPES)
def test_against_float64(seed, rows, inner, columns, device):
    x, weight, gradient = problem(device, rows, inner, columns)
    assert many_rows.suits(x, weight)
    out = many_rows.product(x, weight)
    found = [out, *torch.autograd.grad(out, [x, weight], gradient)]
    exact, exact_weight = x.detach().double(), weight.detach().double()
    wanted = exact @ exact_weight, gradient.double() @ exact_weight.T, exact.T @ gradient.double()
    assert all(near(a, b) and a.is_contiguous() for a, b in zip(found, wanted, strict=True))


def test_chunks_of_rows_and_offsets_of_64_bits(seed, device, monkeypatch):
    """One chunk or many, and always the same bits."""
    from heedful.kernels import sparse_triton

    x, _, gradient = problem(device, 700, 48, 272)
    expected = x.detach().double().T @ gradient.double()
    found = []
    for programs, narrow in ((264, 2**31), (264, 2**31), (264, 1), (1, 2**31), (10**6, 1)):
        monkeypatch.setattr(many_rows, "PROGRAMS", programs)
        monkeypatch.setattr(sparse_triton, "NARROW", narrow)
        found.append(many_rows.multiply_transposed(x.detach(), gradient))
        assert near(found[-1], expected)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_only_what_is_needed_and_again(seed, device):
    """One gradient of two, second derivatives, and gradients that lie apart."""
    x, weight, gradient = problem(device, 40, 20, 24)
    out = many_rows.product(x, weight)
    dx, dw = torch.autograd.grad(out, [x, weight], gradient, retain_graph=True)
    for given, expected in ((x, dx), (weight, dw)):
        alone = many_rows.product(*(t if t is given else t.detach() for t in (x, weight)))
        assert torch.equal(torch.autograd.grad(alone, given, gradient)[0], expected)
    apart = gradient.T.contiguous().T
    found = torch.autograd.grad(out, [x, weight], apart, retain_graph=True)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(found, (dx, dw), strict=True))
    results = []
    for result in (out, x @ weight):
        first = torch.autograd.grad(result.square().sum(), [x, weight], create_graph=True)
        results.append(torch.autograd.grad(sum(t.square().sum() for t in first), [x, weight]))
    for a, b in zip(*results, strict=True):
        assert (a - b).norm() <= 1e-5 * b.norm()


def test_others_go_by_torch(seed, device):
    x, weight, _ = (t.detach() for t in problem(device, 40, 20, 24))
    assert many_rows.suits(x, weight)
    assert not many_rows.suits(x.double(), weight.double())
    assert not many_rows.suits(x.bfloat16(), weight.bfloat16())
    assert not many_rows.suits(x.T.contiguous().T, weight)
    assert not many_rows.suits(x, weight[:, :5].contiguous())
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert not many_rows.suits(x, weight)
    finally:
        torch.set_float32_matmul_precision(before)
    batched = torch.func.vmap(many_rows.product, (0, None))(x.expand(2, -1, -1), weight)
    assert torch.allclose(batched[1], x @ weight, atol=1e-4)


def test_columns_are_cut_into_what_tensor_cores_take():
    for columns in range(1, 513):
        blocks, main, rest = many_rows.cut(columns)
        assert blocks * (main + rest) >= columns > (blocks - 1) * (main + rest)
        assert main + rest <= many_rows.MOST_COLUMNS and main.bit_count() == 1 and main >= 16
        assert rest == 0 or (rest.bit_count() == 1 and 16 <= rest < main)


def test_a_layer(seed, device, monkeypatch):
    """GATConv's table is made so; its results are those of the layer in float64."""
    graph = Graph.from_edges(*torch.randint(50, (2, 300), device=device), nodes=50)
    layer = GATConv(20, 4, 4).to(device)
    x = torch.randn(50, 20, device=device, requires_grad=True)
    calls, original = [], many_rows.multiply
    monkeypatch.setattr(many_rows, "multiply", lambda *rest: calls.append(0) or original(*rest))
    results = []
    for dtype in (torch.float32, torch.float64):
        own = x.detach().to(dtype).requires_grad_()
        layer.to(dtype)
        out = layer(own, graph)
        results.append([out, *torch.autograd.grad(out.square().sum(), [own, *layer.parameters()])])
    assert len(calls) == 2
    for a, b in zip(*results, strict=True):
        assert (a - b).norm() <= 1e-4 * b.norm()


@pytest.mark.gpu
@pytest.mark.parametrize(("inner", "columns"), [(128, 80), (100, 80), (128, 264)])
def test_as_accurate_as_cublas(seed, inner, columns):
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("no such CUDA device")
    x, weight, gradient = problem("cuda", 50_000, inner, columns)
    x, weight = x.detach(), weight.detach()
    for found, theirs, a, b in (
        (many_rows.multiply(x, weight), x @ weight, x, weight),
        (many_rows.multiply(gradient, weight.T), gradient @ weight.T, gradient, weight.T),
        (many_rows.multiply_transposed(x, gradient), x.T @ gradient, x.T, gradient),
    ):
        exact = a.double() @ b.double()
        assert (found - exact).norm() <= 3 * (theirs - exact).norm() + 1e-6 * exact.norm()


@pytest.mark.gpu
def test_what_is_not_finite_stays_where_it_is(seed):
    """Rounded to two numbers, infinity less infinity would be none."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("no such CUDA device")
    x, weight, gradient = (t.detach() for t in problem("cuda", 20_000, 100, 80))
    x[5, 3], x[7, 7], x[8, 2] = torch.inf, torch.nan, 3e38
    gradient[9, 4], gradient[11, 6] = -torch.inf, torch.nan
    for found, wanted, a, b in (
        (many_rows.multiply(x, weight), x @ weight, x, weight),
        (many_rows.multiply(gradient, weight.T), gradient @ weight.T, gradient, weight.T),
        (many_rows.multiply_transposed(x, gradient), x.T @ gradient, x.T, gradient),
    ):
        finite = wanted.isfinite()
        assert torch.equal(found.isfinite(), finite)
        assert torch.allclose(found[~finite], wanted[~finite], equal_nan=True)  # infinities have signs
        # A sum of 20,000 terms is rounded by what its terms are, not by what is left of them.
        terms = (a.double().abs() @ b.double().abs())[finite]
        assert ((found - wanted)[finite].abs() <= 1e-6 * terms).all()
