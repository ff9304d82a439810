"""Tiny and huge numbers, listeners who hear nobody, memory full of NaN."""

from __future__ import annotations

import math

import pytest
import torch

import heedful
from heedful import Causal, Graph, Mask
from heedful.attention.strategies import STRATEGIES

from .cases import NEIGHBORS, SIMILARITIES, Case, Shape, case, error

SCALES = [1e-6, 1e-3, 1.0, 1e2, 1e4]
FEW_NEIGHBORS = ["everyone", "causal", "window", "mask per head", "graph", "graph, all"]
FEW_POSITIONS = ["none", "alibi", "relative, silent"]


def scaled(example: Case, scale: float) -> Case:
    tensors = {
        name: x * scale if name in ("query", "key", "value") else x for name, x in example.tensors.items()
    }
    return Case(tensors, example.pieces).rounded(torch.float32)


def nudged(example: Case, generator, hard: bool) -> Case:
    """The same up to a few roundings of float32: what changes much under it, float32 cannot know."""

    def nudge(name, x):
        # Nothing but the order of its scores matters to Argmax: near ties are found by larger nudges.
        size = 1e-5 if hard and name in SCORES else 3e-7
        return x * (1 + size * torch.randn(x.shape, generator=generator, dtype=x.dtype))

    # Argmax hears whole numbers, whose scores are exact: there is no rounding to imitate, and ties to keep;
    # unless an edge or a position adds to them.
    exact = SCORES if hard and not example.tensors.keys() & SCORES - {"query", "key"} else ()
    return Case(
        {name: x if name in exact else nudge(name, x) for name, x in example.tensors.items()}, example.pieces
    )


SCORES = {"query", "key", "neighbors.edge_key", "neighbors.edge_bias", "position.table"}  # what they are of


def resolvable(similarity: str, partial: bool, scale: float, name: str) -> bool:
    """Whether float32 can tell this result, however well the problem itself is posed."""
    if similarity in ("elu", "random features") and scale < 1 and name == "query":
        return (
            False  # all keys look alike to a tiny query, so its gradient is what is left of terms that cancel
        )
    if scale <= 1 or similarity.startswith("polynomial") or similarity == "uniform":
        return True
    if (similarity == "elu" or (similarity == "random features" and partial)) and scale > 1:
        return False  # e^−100 is 0 in float32, so a listener may hear 0 of everyone: no mean is left
    # Exponentials have settled on one key. Gradients that pass through the scores are then rounding errors of
    # 1 − p.
    return name in ("output", "value")


# What a user's own feature map does to large numbers is the user's affair: exp(100) is inf in float32.
SAFE = [name for name in SIMILARITIES if name != "features"]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("similarity", SAFE)
def test_no_size_of_inputs_breaks_float32(similarity, scale, seed):
    scale = 2.0 ** round(math.log2(scale))  # exactly: what ties for Argmax should still do so
    compared = due = 0
    for n, neighbors in enumerate(FEW_NEIGHBORS):
        position = FEW_POSITIONS[(n + seed) % 3]
        shape = Shape(heads=2, key_heads=1, queries=18, keys=20, dim=4, seed=seed + n)
        example = scaled(case(shape, similarity, neighbors, position), scale)
        wanted = example.evaluate("reference")
        moved = [
            nudged(example, shape.generator, similarity == "argmax").evaluate("reference") for _ in range(3)
        ]
        stable = [name for name in wanted if max(error(other[name], wanted[name]) for other in moved) <= 1e-5]
        partial = neighbors != "everyone" or position == "relative, silent"
        due += resolvable(similarity, partial, scale, "output")
        for strategy in example.able(dtype=torch.float32):
            found = example.evaluate(strategy, torch.float32)
            for name, x in found.items():
                if similarity == "random features" and scale > 1 and partial and name != "output":
                    continue  # e^−100 over itself is 1; a gradient is divided by it before it is multiplied
                assert bool(x.isfinite().all()), f"{strategy}, {neighbors}, {position}: {name} is not finite"
            for name in filter(lambda name: resolvable(similarity, partial, scale, name), stable):
                # Of an edge heard alone the weight does not matter: g·v − g·v is left, and is rounded.
                alone = name in ("neighbors.edge_weight", "neighbors.edge_bias")
                floor = 0.01 * float(wanted["output"].norm()) if alone else 0.0
                got = error(found[name], wanted[name], floor)
                assert got <= 1e-4, f"{strategy}, {neighbors}, {position}: {name} is off by {got:.2g}"
                compared += 1
    assert compared > 0 or not due


@pytest.mark.parametrize("size", [1e6, 1e18, math.inf, math.nan])
@pytest.mark.parametrize(
    "similarity",
    [heedful.Softmax(), heedful.Polynomial(2), heedful.Polynomial(3, 0.5), heedful.RandomFeatures(20)],
    ids=repr,
)
def test_a_key_that_nobody_may_hear_can_be_anything(similarity, size, seed):
    """A future one, padding, or memory that nobody has written to. NaN times 0 is loud, at least: it comes
    through torch's own kernel, which adds a mask, and through an FFT.
    """
    q, k, v = torch.randn(3, 1, 2, 30, 6)
    allowed = torch.rand(30, 30) < 0.6
    allowed[:, -1] = False
    edges = allowed.nonzero()
    other = k.clone()
    other[..., -1, :] = size
    for neighbors in (Causal(), Mask(allowed), Graph.from_edges(edges[:, 1], edges[:, 0], nodes=30)):
        rows = slice(0, 29)
        plan = heedful.explain(q, k, v, similarity=similarity, neighbors=neighbors)
        for name in {entry.name for entry in plan.candidates} - plan.rejected.keys():
            if name in ("toeplitz", "fused") and not math.isfinite(size):
                continue
            # Single listeners may hear but such weights as nearly cancel.
            call = {"similarity": similarity, "neighbors": neighbors, "strategy": name}
            before, after = (heedful.attend(q, keys, v, **call)[..., rows, :] for keys in (k, other))
            off = (before - after).norm(dim=-1) / before.norm(dim=-1).clamp_min(1e-6)
            assert off.median() <= 1e-5 and after.isfinite().all(), (name, neighbors)


def test_nobody_there_still_passes_gradients():
    """To whatever might learn: an empty batch must not break a step off."""
    x = torch.randn(0, 2, 6, 4)
    for name, learned in (("position", heedful.Relative), ("similarity", heedful.Softmax)):
        table = torch.zeros(11 if name == "position" else 2, requires_grad=True)
        heedful.attend(x, x, x, **{name: learned(table)}).sum().backward()
        assert table.grad is not None and not table.grad.any()


@pytest.mark.parametrize(
    "options",
    [
        {"similarity": heedful.Polynomial(2), "strategy": "tiled"},
        {"similarity": heedful.Argmax(), "strategy": "tiled"},
        {"neighbors": heedful.Window(3), "strategy": "banded"},
    ],
    ids=str,
)
def test_a_mask_that_changes_before_the_backward_pass_is_told(options):
    """As torch tells of its own, for what is computed again would be another's."""
    x, allowed = torch.randn(1, 2000, 4).requires_grad_(), torch.rand(2000, 2000) < 0.5
    mask = Mask(allowed)
    neighbors = mask & options["neighbors"] if "neighbors" in options else mask
    out = heedful.attend(x, x, x, **{**options, "neighbors": neighbors})
    allowed.logical_not_()
    with pytest.raises(RuntimeError, match=r"shape \(2000, 2000\).* was changed in place"):
        out.sum().backward()


def test_a_weight_that_changes_before_the_backward_pass_is_told():
    x, weight = torch.randn(1, 1200, 4).requires_grad_(), torch.randn(4)
    out = heedful.attend(x, x, x, similarity=heedful.Additive(weight=weight), strategy="tiled")
    weight.mul_(3)
    with pytest.raises(RuntimeError, match=r"shape \(4,\).* was changed in place"):
        out.sum().backward()


def test_squares_that_overflow_say_so():
    """By NaN: 0 would look like a listener who hears nobody."""
    q, k, v = torch.randn(3, 1, 5, 4)
    for degree in (1, 2, 3):
        plan = heedful.explain(q, k, v, similarity=heedful.Polynomial(degree))
        for name in {entry.name for entry in plan.candidates} - plan.rejected.keys():
            out = heedful.attend(1e25 * q, k, v, similarity=heedful.Polynomial(degree), strategy=name)
            assert out.isnan().all(), name


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("strategy", ["fused", "tiled", "reference"])
@pytest.mark.parametrize("scale", [30.0, 1e4])
def test_large_scores_that_tie_leave_gradients_of_values(scale, strategy, compiled, seed):
    """Keys told more than once share a weight, however large their scores; 0.7 is no power of two.

    Compiled code has torch's own backward kernel, in which such keys do not share.
    """
    repeats = 1 if compiled else 7
    generator = torch.Generator().manual_seed(seed)
    q, v = torch.randn(2, 2, 2, 70, 12, generator=generator) * scale
    k = (torch.randn(2, 2, 70 // repeats, 12, generator=generator) * scale).repeat(1, 1, repeats, 1)
    gradient = torch.randn(2, 2, 70, 12, generator=generator)

    def of_values(v, q, k, similarity):
        out = heedful.attend(q, k, v, similarity=similarity, strategy=strategy)
        return torch.autograd.grad(out, v, gradient.to(v.dtype))[0]

    given = v.clone().requires_grad_(), q, k
    exact = [x.detach().double() for x in given]
    similarity = heedful.Softmax(scale=0.7)
    wanted = torch.softmax(0.7 * exact[1] @ exact[2].mT, -1).mT @ gradient.double()
    nudged = torch.softmax(0.7 * exact[1] @ (exact[2] * (1 + 1e-7)).mT, -1).mT @ gradient.double()
    if compiled:
        torch.compiler.reset()
        forward = torch.compile(
            lambda q, k, v: heedful.attend(q, k, v, similarity=similarity, strategy=strategy),
            fullgraph=True,
            backend="aot_eager",
        )
        (found,) = torch.autograd.grad(forward(q, k, given[0]), given[0], gradient)
    else:
        found = of_values(*given, similarity)
    assert error(found, wanted) <= max(1e-4, 10 * error(nudged, wanted))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_a_listener_without_neighbors_gets_zero_and_sends_no_gradient(similarity, dtype, seed):
    """In both the ways of having none: a mask (dense strategies) and an edge list."""
    shape = Shape(heads=2, key_heads=1, queries=20, keys=20, seed=seed)
    allowed = torch.rand(20, 20) < 0.3
    allowed[[0, 7, 19]] = False
    for neighbors in (Mask(allowed), Graph.from_dense(allowed), Mask(allowed) & heedful.Window(5)):
        example = case(shape, similarity, "everyone", "none")
        example.pieces["neighbors"].make = lambda neighbors=neighbors: neighbors
        for strategy in example.able(dtype=dtype):
            leaves = example.leaves(dtype)
            args, call = example.build(leaves)
            out = heedful.attend(*args, **call, strategy=strategy)
            silent = out[:, [0, 7, 19]]
            assert torch.equal(silent, torch.zeros_like(silent)), strategy
            gradients = torch.autograd.grad(silent.sum(), args, allow_unused=True)
            assert all(gradient is None or not gradient.any() for gradient in gradients), strategy
            (gradient,) = torch.autograd.grad(heedful.attend(*args, **call, strategy=strategy).sum(), args[2])
            assert bool(gradient.isfinite().all()), strategy


@pytest.mark.parametrize("strategy", ["reference", "tiled", "scan", "toeplitz", "sparse", "fused"])
def test_queries_that_stand_before_every_key_hear_nobody(strategy, seed):
    similarity = heedful.Softmax() if strategy == "fused" else heedful.Uniform()
    q, k, v = (torch.randn(1, n, 3, requires_grad=True) for n in (9, 4, 4))
    out = heedful.attend(q, k, v, similarity=similarity, neighbors=Causal(), strategy=strategy)
    assert torch.equal(out[:, :5], torch.zeros(1, 5, 3))
    assert out[:, 5:].abs().min() > 0
    (gradient,) = torch.autograd.grad(out[:, :5].sum(), v)
    assert not gradient.any()


@pytest.mark.parametrize("strategy", ["reference", "tiled", "scan", "toeplitz", "sparse"])
def test_who_hears_one_speaker_hears_it_whole_however_faintly(strategy, seed):
    """Features that all but cancel must do so in numerator and normaliser alike."""
    q, k, v = torch.randn(3, 4, 50, 16)
    first = k[:, :1]
    across = q[:, :1] - (q[:, :1] * first).sum(-1, keepdim=True) / first.square().sum(-1, True) * first
    q[:, :1] = across + 0.01 * first  # a weight of 0.03 from terms of 100
    q.requires_grad_()
    call = {"similarity": heedful.Polynomial(degree=2, constant=0), "neighbors": Causal()}
    alone = heedful.attend(q, k, v, **call, strategy=strategy)[:, 0]
    assert torch.allclose(alone, v[:, 0], atol=2e-6)
    assert torch.autograd.grad(alone.cumsum(-1).sum(), q)[0].abs().max() <= 1e-3


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_no_queries_or_no_keys_give_zeros(shape):
    q, k, v = (torch.randn(2, n, 3, requires_grad=True) for n in (shape[0], shape[1], shape[1]))
    out = heedful.attend(q, k, v)
    assert out.shape == (2, shape[0], 3)
    assert not out.any()
    assert all(not gradient.any() for gradient in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.mark.parametrize("strategy", ["reference", "tiled", "sparse", "scan", "factored"])
def test_a_normalizer_that_is_exactly_zero_gives_zero(strategy):
    """Odd powers of opposite keys cancel: 0/0 is answered by 0, as for no neighbours, and never by NaN."""
    k = torch.tensor([[[1.0], [-1.0]]], requires_grad=True)
    q, v = torch.ones(1, 2, 1, requires_grad=True), torch.tensor([[[3.0], [5.0]]], requires_grad=True)
    neighbors = Causal() if strategy == "scan" else heedful.Everyone()
    call = {"similarity": heedful.Polynomial(1, 0.0), "neighbors": neighbors, "strategy": strategy}
    out = heedful.attend(q, k, v, **call)
    assert out[0, -1] == 0
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(out.sum(), (q, k, v)))


@pytest.fixture
def poisoned(monkeypatch):
    """Memory that is asked for uninitialised comes full of NaN."""

    def fill(x):
        if x.is_floating_point():
            x.detach().fill_(torch.nan)
        return x

    for owner, name in (
        (torch, "empty"),
        (torch, "empty_like"),
        (torch.Tensor, "new_empty"),
        (torch, "empty_strided"),
    ):
        plain = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, plain=plain, **kwargs: fill(plain(*args, **kwargs)))


def test_the_poison_works(poisoned):
    assert torch.empty(3).isnan().all()
    assert torch.ones(3).new_empty(2).isnan().all()
    assert torch.empty_like(torch.ones(3)).isnan().all()


@pytest.mark.parametrize("neighbors", NEIGHBORS)
@pytest.mark.parametrize(
    "similarity", ["softmax", "polynomial 2", "elu", "additive", "additive v2, per head", "uniform"]
)
def test_no_result_rests_on_uninitialised_memory(similarity, neighbors, seed, request):
    example = case(
        Shape(lead=(2,), heads=2, queries=19, keys=20, seed=seed), similarity, neighbors, "alibi, per head"
    )
    able = example.able()
    clean = {strategy: example.evaluate(strategy) for strategy in able}
    request.getfixturevalue("poisoned")
    for strategy in able:
        for name, x in example.evaluate(strategy).items():
            assert torch.equal(x, clean[strategy][name]), f"{strategy}: {name}"


def test_decoding_does_not_read_the_spare_rows_of_its_cache(poisoned):
    q, k, v = torch.randn(3, 1, 2, 9, 4, dtype=torch.float64)
    state = None
    with torch.no_grad():
        for n in range(9):
            part = slice(n, n + 1)
            out, state = heedful.step(q[..., part, :], k[..., part, :], v[..., part, :], state)
    assert error(out, heedful.attend(q, k, v, neighbors=Causal())[..., -1:, :]) <= 1e-12


def test_every_strategy_is_among_those_tried_at_extremes():
    tried = set()
    for similarity in SIMILARITIES:
        for neighbors in FEW_NEIGHBORS:
            shape = Shape(heads=2, key_heads=1, queries=18, keys=20)
            tried |= set(case(shape, similarity, neighbors, "none").able(dtype=torch.float32))
    assert tried == {name for name, strategy in STRATEGIES.items() if strategy.exact} - {"flex"}
