"""φ(q)·φ(k) by features in registers, against all pairs: interpreted without a GPU, at small sizes."""

import itertools
import random

import pytest
import torch
from torch.nn import functional as F

import heedful
from heedful import (
    Alibi,
    Causal,
    EluKernel,
    Everyone,
    FeatureMap,
    Polynomial,
    RandomFeatures,
    Uniform,
    attend,
)
from heedful.attention.strategies import expanded
from heedful.kernels import feature_maps, sparse_operators
from heedful.kernels.feature_maps import Map, feature_attention, feature_step

pytest.importorskip("triton")

KINDS = ["given", "elu", "exponential"]


@pytest.fixture
def device(device, monkeypatch):
    if device == "cpu":
        monkeypatch.setattr(sparse_operators, "on_gpu", lambda device: True)
    return device


@pytest.fixture
def small(monkeypatch):
    """Blocks, groups and spans so short that a test has several."""
    shape_of = feature_maps.shape_of
    monkeypatch.setattr(
        feature_maps, "shape_of", lambda *sizes: shape_of(*sizes)._replace(block=16, group=16)
    )
    monkeypatch.setattr(feature_maps, "span_of", lambda length, batch, shape, causal: 32)
    monkeypatch.setattr(feature_maps, "TIMES", 16)


def a_map(kind, d, device, features=40) -> Map:
    if kind != "exponential":
        return Map(kind, d)
    w = torch.randn(features, d, device=device) / 2
    return Map(kind, features, w, w.square().sum(-1) / 2, 0.5)


def expand(phi: Map, x, *, query: bool):
    if phi.kind == "given":
        return x
    if phi.kind == "elu":
        return F.elu(x) + 1
    if phi.kind == "square":
        return (x[..., :, None] * x[..., None, :]).flatten(-2)
    w, taken = phi.directions.to(x.dtype), phi.taken.to(x.dtype)
    if query:
        exponent = x @ w.mT + taken
        return torch.exp(exponent - exponent.detach().amax(-1, keepdim=True))
    return torch.exp(x @ w.mT - taken - phi.half * x.square().sum(-1, keepdim=True))


def by_pairs(phi, causal, rates=None):
    """The defining formula."""

    def run(q, k, v):
        weights = expand(phi, q, query=True) @ expand(phi, k, query=False).mT
        if rates is not None:
            i, j = (torch.arange(n, device=q.device) for n in weights.shape[-2:])
            weights = weights * torch.exp(-rates.to(q.dtype)[:, None, None] * (i[:, None] - j).clamp_min(0))
        if causal:
            weights = weights.tril()
        total = weights.sum(-1, keepdim=True)
        return (weights @ v) / total.masked_fill(total == 0, 1)

    return run


def problem(device, kind, n, m, d, e, dtype=torch.float32):
    q, k, v = (torch.randn(2, *shape, device=device) for shape in ((n, d), (m, d), (m, e)))
    if kind in ("given", "square"):  # so that what is divided by is not near 0, where rounding has no bound
        q, k = q.abs(), k.abs()
    return [t.to(dtype).requires_grad_() for t in (q, k, v)]


def compare(tensors, phi, causal, tolerance, rates=None):
    exact = [t.detach().double().requires_grad_() for t in tensors]
    truth = by_pairs(phi, causal, rates)
    out = feature_attention(*tensors, phi, causal=causal, again=truth, rates=rates)
    expected = truth(*exact)
    gradient = torch.randn_like(expected)
    actual = [out, *torch.autograd.grad(out, tensors, gradient.to(out.dtype), retain_graph=True)]
    wanted = [expected, *torch.autograd.grad(expected, exact, gradient.to(out.dtype).double())]
    for x, y in zip(actual, wanted, strict=True):
        assert x.dtype == tensors[0].dtype and x.shape == y.shape
        assert (x.double() - y).norm() <= tolerance * y.norm()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m", "d", "e"), [(70, 50, 16, 16), (33, 90, 5, 20), (40, 40, 36, 3)])
def test_everyone(seed, kind, n, m, d, e, device, small):
    compare(problem(device, kind, n, m, d, e), a_map(kind, d, device), False, 1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decays", [False, True])
@pytest.mark.parametrize(("n", "d", "e"), [(90, 16, 16), (70, 5, 20)])
def test_the_past(seed, kind, decays, n, d, e, device, small):
    rates = torch.tensor([0.3, 0.01], device=device) if decays else None
    compare(problem(device, kind, n, n, d, e), a_map(kind, d, device), True, 1e-4, rates)


def test_more_spans_than_are_carried_at_once(seed, device, small):
    rates = torch.tensor([0.02, 0.0], device=device)
    compare(
        problem(device, "elu", 32 * 18 + 5, 32 * 18 + 5, 4, 4), a_map("elu", 4, device), True, 1e-4, rates
    )


def test_more_rows_or_positions_than_a_launch_can_number(device):
    """They are left to torch."""
    x = torch.zeros(1, 1, 1, 8, device=device)
    assert feature_maps.suits(*[x.expand(65_535, 1, 4, 8)] * 3, causal=True)
    assert not feature_maps.suits(*[x.expand(65_536, 1, 4, 8)] * 3, causal=True)
    assert feature_maps.suits(*[x.expand(1, 1, 65_535 * 128, 8)] * 3, causal=True)
    assert not feature_maps.suits(*[x.expand(1, 1, 65_535 * 128 + 1, 8)] * 3, causal=True)
    assert not feature_maps.within_reach(x[..., :1].expand(1, 1, 2**23, 256))
    many = torch.randn(3, 65_536, 1, 2, 3, device=device)
    options = {"similarity": EluKernel(), "neighbors": Causal()}
    found, wanted = (attend(*many, strategy=way, **options) for way in ("scan", "reference"))
    assert torch.allclose(found, wanted, atol=1e-5)


def test_spans_are_whole_blocks():
    for d, e, features, item in itertools.product((1, 16, 100), (1, 40, 128), (1, 16, 90, 4096), (2, 4)):
        for kind in ("elu", "exponential"):
            shape = feature_maps.shape_of(d, e, Map(kind, features), item)
            for causal in (False, True):
                assert feature_maps.span_of(10_000, 3, shape, causal) % shape.block == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_half_precision(seed, dtype, causal, device, small):
    for kind in KINDS:
        if device == "cpu" and kind == "exponential" and dtype is torch.bfloat16:
            continue  # Triton's interpreter multiplies bfloat16 matrices as if they were integers
        compare(problem(device, kind, 64, 64, 16, 16, dtype), a_map(kind, 16, device), causal, 2e-2)


def test_second_derivatives_and_one_tensor_under_three_names(seed, device, small):
    x = problem(device, "elu", 40, 40, 4, 4)[0]
    phi = a_map("elu", 4, device)
    truth = by_pairs(phi, True)
    out = feature_attention(x, x, x, phi, causal=True, again=truth).square().sum()
    plain, recorded = (
        torch.autograd.grad(out, x, retain_graph=True, create_graph=again)[0] for again in (False, True)
    )
    assert (plain - recorded).norm() <= 1e-3 * plain.norm()
    (wanted,) = torch.autograd.grad(truth(x, x, x).square().sum(), x, create_graph=True)
    second, wanted = (torch.autograd.grad(g.square().sum(), x)[0] for g in (recorded, wanted))
    assert (second - wanted).norm() <= 1e-3 * wanted.norm()


@pytest.mark.parametrize("kind", [*KINDS, "square"])
def test_steps_add_up_to_the_whole(seed, kind, device):
    """Token by token, each state scaled by some number on the way."""
    n, d, e = 7, 5, 70
    q, k, v = (t.detach() for t in problem(device, kind, n, n, d, e))
    phi = Map("square", d * d) if kind == "square" else a_map(kind, d, device, features=90)
    keep, state = torch.tensor([0.5, 0.9], device=device), None
    for i in range(n):
        out, state = feature_step(q[:, i], k[:, i], v[:, i], phi, state, keep)
        expected = by_pairs(phi, True, -keep.log())(*(x[:, : i + 1].double() for x in (q, k, v)))[:, -1]
        assert (out - expected).norm() <= 1e-4 * expected.norm()
    assert state.shape == (2, phi.features, e + 1)


class Counted:
    """A function that knows how often it was called."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *args, **options):
        self.calls += 1
        return self.function(*args, **options)


@pytest.fixture
def ran(monkeypatch):
    """The kernels `attend` and `step` run, counted."""
    found = Counted(feature_attention), Counted(feature_step)
    monkeypatch.setattr(expanded, "feature_attention", found[0])
    monkeypatch.setattr(expanded, "feature_step", found[1])
    return found


SIMILARITIES = [
    EluKernel(),
    RandomFeatures(40, seed=3),
    FeatureMap(torch.exp, positive=True),
    Polynomial(4),
    Uniform(),
]


def clear(similarity, q, k, causal):
    """1 for listeners whose weights' features do not cancel to a hundredth of what they add up to, else 0."""
    if not isinstance(similarity, Polynomial):
        return torch.ones((), device=q.device)
    k = k.detach().repeat_interleave(q.shape[-3] // k.shape[-3], -3)
    score, largest = (
        q.detach() @ k.mT + 1,
        q.detach().norm(dim=-1)[..., None] * k.norm(dim=-1)[..., None, :] + 1,
    )
    if causal:
        score, largest = score.tril(), largest.tril()
    total = score.pow(similarity.degree).sum(-1, keepdim=True)
    return (total > 0.01 * largest.pow(similarity.degree).sum(-1, keepdim=True)).to(torch.float32)


@pytest.mark.parametrize("similarity", SIMILARITIES, ids=str)
@pytest.mark.parametrize("place", ["everyone", "past", "past, decaying"])
def test_attend(seed, similarity, place, device, small, ran):
    """The strategies run the kernels there, whatever the shapes, and agree with the definition."""
    draw = random.Random(seed)
    n, m, e = (draw.randint(1, 80) for _ in range(3))
    d, heads, groups = draw.randint(1, 6), draw.choice([1, 2]), draw.choice([1, 2])
    n = n if place == "everyone" else m
    shapes = ((heads * groups, n, d), (heads, m, d), (heads, m, e))
    tensors = [torch.randn(2, *shape, device=device).requires_grad_() for shape in shapes]
    options = {
        "similarity": similarity,
        "neighbors": Everyone() if place == "everyone" else Causal(),
        "position": Alibi() if place == "past, decaying" else None,
    }
    out = attend(*tensors, strategy="factored" if place == "everyone" else "scan", **options)
    assert ran[0].calls == (0 if place == "everyone" and isinstance(similarity, Uniform) else 1)
    wide = [x.detach().double().requires_grad_() for x in tensors]
    expected = attend(*wide, strategy="reference", **options)
    # Of (q·k + 1)⁴ the features cancel where that is small: a listener who hears only such has no bound.
    told = clear(similarity, *wide[:2], causal=place != "everyone")
    gradient = torch.randn_like(expected) * told
    found = torch.autograd.grad(out, tensors, gradient.float(), materialize_grads=True, allow_unused=True)
    wanted = torch.autograd.grad(expected, wide, gradient, materialize_grads=True, allow_unused=True)
    # Of one who hears one speaker alone the weights do not matter; what is left of them is rounding.
    for x, y in zip((out * told, *found), (expected * told, *wanted), strict=True):
        assert x.dtype == torch.float32 and (x - y).norm() <= 1e-4 * y.norm() + 1e-5 * gradient.norm()


@pytest.mark.parametrize("neighbors", [Everyone(), Causal()], ids=str)
def test_random_features_of_wide_heads_are_not_rounded_to_nothing(neighbors, seed, device, small, ran):
    tensors = [2.5 * torch.randn(1, 2, 40, 128, device=device) for _ in range(2)]
    tensors = [x.requires_grad_() for x in (*tensors, torch.randn(1, 2, 40, 5, device=device))]
    gradient, found = torch.randn(1, 2, 40, 5, device=device), []
    for way, leaves in (
        ("factored" if isinstance(neighbors, Everyone) else "scan", tensors),
        ("reference", [x.detach().double().requires_grad_() for x in tensors]),
    ):
        out = attend(*leaves, similarity=RandomFeatures(40, seed=3), neighbors=neighbors, strategy=way)
        found.append((out, *torch.autograd.grad(out, leaves, gradient.to(out.dtype))))
    assert ran[0].calls == 1
    for x, y in zip(*found, strict=True):
        assert (x - y).norm() <= 1e-3 * y.norm()


def test_parameters_of_a_map_and_slopes_get_gradients(seed, device, small, ran):
    """A map with parameters runs the kernels; slopes that learn are left to torch."""
    phi = torch.nn.Sequential(torch.nn.Linear(4, 20), torch.nn.Softplus()).to(device)
    slopes = torch.tensor([0.1, 0.5], device=device, requires_grad=True)
    q, k, v = torch.randn(3, 2, 40, 4, device=device).unbind()
    for position, learned in ((Alibi(), []), (Alibi(slopes), [slopes])):
        options = {"similarity": FeatureMap(phi), "neighbors": Causal(), "position": position}
        found, wanted = (
            torch.autograd.grad(
                attend(q, k, v, strategy=way, **options).square().sum(), [*phi.parameters(), *learned]
            )
            for way in ("scan", "reference")
        )
        assert ran[0].calls == 1
        for x, y in zip(found, wanted, strict=True):
            assert (x - y).norm() <= 1e-3 * y.norm() + 1e-5


def test_second_derivatives_of_attend(seed, device, small, ran):
    for similarity in (EluKernel(), RandomFeatures(20), FeatureMap(torch.exp)):
        q, k, v = (x.requires_grad_() for x in torch.randn(3, 1, 2, 40, 4, device=device).unbind())
        options = {"similarity": similarity, "neighbors": Causal(), "position": Alibi()}
        second = []
        for way in ("scan", "reference"):
            out = attend(q, k, v, strategy=way, **options)
            first = torch.autograd.grad(out.square().sum(), (q, k), create_graph=True)
            second.append(torch.autograd.grad(sum(x.square().sum() for x in first), (q, k, v)))
        for x, y in zip(*second, strict=True):
            assert (x - y).norm() <= 1e-3 * y.norm()
    assert ran[0].calls == 3


def test_who_transforms_a_call_gets_torch(seed, device, ran):
    """vmap, forward mode and second-order transforms cannot see through the kernels."""
    q, k, v = torch.randn(3, 3, 2, 20, 4, device=device).unbind()

    def run(q, k, v, way="scan"):
        return attend(q, k, v, similarity=EluKernel(), neighbors=Causal(), strategy=way)

    def expected(*tensors):
        return run(*tensors, way="reference")

    assert torch.allclose(torch.func.vmap(run)(q, k, v), expected(q, k, v), atol=1e-5)
    for x, y in zip(*(torch.func.jvp(f, (q, k, v), (k, v, q)) for f in (run, expected)), strict=True):
        assert torch.allclose(x, y, atol=1e-4)
    found, wanted = (torch.func.grad(lambda q, f=f: f(q, k, v).square().sum())(q) for f in (run, expected))
    assert torch.allclose(found, wanted, atol=1e-4)
    assert ran[0].calls == 0


@pytest.mark.parametrize("similarity", [*SIMILARITIES, Polynomial(2)], ids=str)
@pytest.mark.parametrize("position", [None, Alibi()], ids=str)
def test_decoding(seed, similarity, position, device, ran):
    """A beginning at once, then token by token, and the keys grow on the way."""
    n = 9
    q, k, v = torch.randn(3, 2, 2, n, 5, device=device).unbind()
    if isinstance(similarity, Polynomial):
        k = k * torch.logspace(-1, 1, n, device=device)[:, None]
    options = {"similarity": similarity, "neighbors": Causal(), "position": position}
    expected = attend(*(x.double() for x in (q, k, v)), strategy="reference", **options)
    out, state = heedful.step(*(x[..., :4, :] for x in (q, k, v)), **options)
    outs = [out]
    for i in range(4, n):
        out, state = heedful.step(*(x[..., i : i + 1, :] for x in (q, k, v)), state, **options)
        outs.append(out)
    assert ran[1].calls == n - 4 and state.length == n
    told = clear(similarity, q.double(), k.double(), causal=True)
    assert ((torch.cat(outs, -2) - expected) * told).norm() <= 1e-4 * expected.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("d", "e"), [(16, 16), (64, 64), (128, 100), (8, 128), (100, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large(seed, kind, d, e, dtype, causal):
    """At sizes whose products are compiled differently; the narrow ones came out wrong with more warps."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    tensors = problem("cuda", kind, 5000, 5000, d, e, dtype)
    phi = a_map(kind, d, "cuda", features=16 if e == 100 else 256)
    if kind == "exponential":
        phi = phi._replace(directions=phi.directions * 4 / d**0.5)
        phi = phi._replace(taken=phi.directions.square().sum(-1) / 2)
    rates = torch.tensor([0.01, 0.2], device="cuda") if causal else None
    compare(tensors, phi, causal, 1e-4 if dtype is torch.float32 else 2e-2, rates)
    first, second = (
        feature_attention(*tensors, phi, causal=causal, again=by_pairs(phi, causal, rates), rates=rates)
        for _ in range(2)
    )
    assert torch.equal(first, second)
