"""Torch's kernels, mended by a hook or called directly: what torch passes them, and what comes out."""

import gc
import weakref
from contextlib import nullcontext

import pytest
import torch
from torch._dynamo import compiled_autograd
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from heedful import Causal, Everyone, Graph, Relative, Window, attend
from heedful.attention.strategies import sdpa

ON_GPU = [key for key in sdpa._KERNELS if key[0] == "cuda"]
NAMES = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
BACKENDS = {getattr(SDPBackend, name).value: getattr(SDPBackend, name) for name in NAMES}


class Heard(TorchDispatchMode):
    """The calls of attention kernels, tensors as their shapes."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "scaled_dot_product" in str(function):
            plain = [tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in args]
            self.calls.append((str(function), plain, kwargs))
        return function(*args, **(kwargs or {}))


def test_this_torch_has_the_kernels_as_they_are_known():
    assert set(sdpa._KERNELS) == {("cpu", 1), ("cuda", 1), ("cuda", 2), ("cuda", 3)}


@pytest.mark.parametrize("key", ON_GPU, ids=lambda key: BACKENDS[key[1]].name)
def test_kernels_get_what_autograd_would_pass(key):
    """On the meta device, where kernels have no numbers: torch's own backward pass is the judge."""
    kernel, scale = sdpa._KERNELS[key], 0.3

    def calls(run):
        shapes = ((2, 4, 128, 64), (2, 4, 256, 64), (2, 4, 256, 64))
        tensors = [torch.empty(s, device="meta", dtype=torch.bfloat16, requires_grad=True) for s in shapes]
        with Heard() as heard:
            run(*tensors).sum().backward()
        return heard.calls

    options = {"is_causal": True, "scale": scale, "enable_gqa": False}
    ours = calls(lambda q, k, v: sdpa._OnceFast.apply(q, k, v, None, options, kernel))
    torchs = calls(lambda q, k, v: kernel.forward(q, k, v, None, True, scale)[0])
    assert len(ours) == 2 and ours == torchs


gpu = pytest.mark.gpu
kept = pytest.mark.parametrize("kept", [nullcontext, lambda: saved_tensors_hooks(torch.clone, torch.clone)])


@kept
@pytest.mark.parametrize("shape", ["plain", "causal", "masked", "grouped", "narrow"])
def test_first_and_second_derivatives(kept, shape):
    """Whether torch's record is mended or the kernels are called directly, where saved tensors are packed."""
    q, k, v = (t.detach() for t in draw(torch.float32, "cpu", queries=7, keys=7, dim=5))
    k, v = (k[:, :2], v[:, :2]) if shape == "grouped" else (k, v)
    v = v[..., :3] if shape == "narrow" else v
    neighbors = {"causal": Causal(), "masked": Window(2)}.get(shape, Everyone())

    def penalty(way, dtype):
        tensors = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        with kept():
            out = attend(*tensors, neighbors=neighbors, strategy=way)
        first = torch.autograd.grad(out.square().sum(), tensors, create_graph=True)
        return first, torch.autograd.grad(sum(x.square().sum() for x in first), tensors)

    ours, exact = penalty("fused", torch.float32), penalty("reference", torch.float64)
    for found, expected in zip(ours, exact, strict=True):
        close(found, expected, torch.float32)


@kept
@pytest.mark.parametrize("wanted", [[0], [1], [2], [0, 2], [1, 2]])
@pytest.mark.parametrize("size", [1.0, 1e3])
def test_only_what_is_asked_for(kept, wanted, size):
    """Some inputs want no gradient; with scores of 1e6 the norms' rounding would show in the others'."""
    drawn = [t.detach() for t in draw(torch.float32, "cpu", queries=6, keys=6, dim=8)]
    drawn[1][..., 1::2, :] = drawn[1][..., ::2, :]  # two speakers each are heard alike
    drawn[0], drawn[1] = drawn[0] * size, drawn[1] * size
    gradient = torch.randn(2, 4, 6, 8)

    def found(way, dtype, **options):
        tensors = [x.to(dtype, copy=True).requires_grad_(i in wanted) for i, x in enumerate(drawn)]
        with kept():
            out = attend(*tensors, strategy=way)
        return torch.autograd.grad(out, [tensors[i] for i in wanted], gradient.to(dtype), **options)

    exact = found("reference", torch.float64)
    close(found("fused", torch.float32), exact, torch.float32, size)
    close(found("fused", torch.float32, create_graph=True), exact, torch.float32, size)


@pytest.mark.parametrize("reentrant", [False, True])
def test_under_checkpoint(reentrant):
    """Saved tensors can be asked for once there, also for a backward pass that is itself differentiated."""
    tensors = draw(torch.float32, "cpu", queries=6, keys=6, dim=8)
    plain = torch.autograd.grad(attend(*tensors, strategy="fused").sum(), tensors)
    out = checkpoint(lambda q, k, v: attend(q, k, v, strategy="fused"), *tensors, use_reentrant=reentrant)
    if reentrant:  # torch.autograd.grad is not for this one
        out.sum().backward()
        found = [tensor.grad for tensor in tensors]
    else:
        found = torch.autograd.grad(out.sum(), tensors, create_graph=True)
        assert all(gradient.requires_grad for gradient in found)
    for one, other in zip(found, plain, strict=True):
        assert torch.allclose(one, other, atol=1e-6)


def test_under_compiled_autograd():
    """It calls hooks where there is no record to ask any more."""
    tensors = draw(torch.float32, "cpu", queries=6, keys=6, dim=8)
    out = attend(*tensors, strategy="fused").sum()
    expected = torch.autograd.grad(out, tensors, retain_graph=True)
    with compiled_autograd._enable(lambda graph: torch.compile(graph, backend="eager")):
        out.backward()
    for tensor, gradient in zip(tensors, expected, strict=True):
        assert torch.allclose(tensor.grad, gradient, atol=1e-6)


def test_a_graph_goes_with_its_result():
    """A hook that knew its record would keep it alive until the garbage is collected."""
    tensors = draw(torch.float32, "cpu", queries=6, keys=6, dim=8)
    held = weakref.ref(inside := tensors[0] * 2)
    out = attend(inside, *tensors[1:], strategy="fused")
    gc.disable()
    try:
        del inside, out
        assert held() is None
    finally:
        gc.enable()


@pytest.fixture
def cuda():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return "cuda"


def draw(dtype, device, heads=4, key_heads=4, queries=192, keys=192, dim=64):
    shapes = ((2, heads, queries, dim), (2, key_heads, keys, dim), (2, key_heads, keys, dim))
    return [torch.randn(s, device=device).to(dtype).requires_grad_() for s in shapes]


def with_gradients(function, tensors, gradient):
    out = function(*tensors)
    return out, *torch.autograd.grad(out, tensors, gradient)


def close(found, exact, dtype, size=0.0):
    """Up to rounding of the largest entry, or of what sums to it if that has a size of its own."""
    tolerance = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == dtype
        assert (one.double() - other).abs().max() <= tolerance * max(size, float(other.detach().abs().max()))


@gpu
@kept
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("dim", [64, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("backend", BACKENDS.values(), ids=lambda backend: backend.name)
def test_gradients_on_a_gpu(backend, dtype, dim, grouped, causal, kept, cuda):
    """Where torch would take a kernel, so do we, and outputs and gradients are those of float64."""
    tensors = draw(dtype, cuda, key_heads=2 if grouped else 4, dim=dim)
    gradient = torch.randn(2, 4, 192, dim, device=cuda).to(dtype)
    exact = [t.detach().double().requires_grad_() for t in tensors]
    neighbors = Causal() if causal else Everyone()
    expected = with_gradients(
        lambda q, k, v: attend(q, k, v, neighbors=neighbors, strategy="reference"), exact, gradient.double()
    )
    with sdpa_kernel([backend, SDPBackend.MATH]), kept():
        found = with_gradients(
            lambda q, k, v: attend(q, k, v, neighbors=neighbors, strategy="fused"), tensors, gradient
        )
    close(found, expected, dtype)


@gpu
@kept
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_differentiating_inside_a_backward_pass(dtype, kept, cuda, monkeypatch):
    tensors = draw(dtype, cuda)
    monkeypatch.setattr(torch.autograd, "grad", lambda *_, **__: pytest.fail("took the long way"))
    with kept():
        attend(*tensors, strategy="fused").sum().backward()
        attend(*tensors, neighbors=Causal(), strategy="fused").sum().backward()


@gpu
@kept
@pytest.mark.parametrize("dim", [64, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_second_derivatives_on_a_gpu(dtype, dim, kept, cuda):
    tensors = draw(dtype, cuda, queries=24, keys=24, dim=dim)

    def penalty(run, tensors):
        with kept():
            out = run(*tensors)
        first = torch.autograd.grad(out.square().sum(), tensors, create_graph=True)
        return torch.autograd.grad(sum(x.square().sum() for x in first), tensors)

    exact = [t.detach().double().requires_grad_() for t in tensors]
    expected = penalty(lambda q, k, v: attend(q, k, v, strategy="reference"), exact)
    found = penalty(lambda q, k, v: attend(q, k, v, strategy="fused"), tensors)
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other).norm() <= (1e-4 if dtype == torch.float32 else 5e-2) * other.norm()


@gpu
def test_forward_mode_on_a_gpu(cuda):
    q, k, v = (t.detach() for t in draw(torch.float32, cuda))
    run = lambda q: attend(q, k, v, strategy="fused")  # noqa: E731
    exact = lambda q: F.scaled_dot_product_attention(q, k.double(), v.double())  # noqa: E731
    found = torch.func.jvp(run, (q,), (q,))[1]
    expected = torch.func.jvp(exact, (q.double(),), (q.double(),))[1]
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()


@gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_masks_on_a_gpu(dtype, cuda):
    """Listeners without neighbours get 0 and pass no gradient on; a mask that is learned gets its own."""
    allowed = torch.rand(192, 192) < 0.1
    allowed[5] = allowed[100] = False
    target, source = allowed.nonzero(as_tuple=True)
    graph = Graph.from_edges(source, target, nodes=192).to(cuda)
    tensors = draw(dtype, cuda)
    out, *gradients = with_gradients(
        lambda q, k, v: attend(q, k, v, neighbors=graph, strategy="fused"),
        tensors,
        torch.ones_like(tensors[0]),
    )
    assert (out[:, :, [5, 100]] == 0).all() and (gradients[0][:, :, [5, 100]] == 0).all()
    assert all(x.isfinite().all() for x in (out, *gradients))

    table = torch.randn(2 * 191 + 1, device=cuda, requires_grad=True)
    learned = lambda way, tensors, table: attend(*tensors, position=Relative(table), strategy=way)  # noqa: E731
    exact, double = [t.detach().double() for t in tensors], table.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(learned("reference", exact, double).square().sum(), double)
    (found,) = torch.autograd.grad(learned("fused", tensors, table).float().square().sum(), table)
    tolerance = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 5e-2}[dtype]
    assert (found.double() - expected).norm() <= tolerance * expected.norm()
