"""How alike: feature maps are the scores they stand for, limits, ties, gradients of parameters, errors."""

from __future__ import annotations

import math

import numpy
import pytest
import torch

import heedful
from heedful import (
    Additive,
    Argmax,
    Causal,
    EluKernel,
    Everyone,
    FeatureMap,
    Graph,
    Polynomial,
    RandomFeatures,
    ScoreFunction,
    Softmax,
    Uniform,
    Window,
)
from heedful.attention.neighbors import Tile

from .cases import SIMILARITIES, Shape, error, exponential, scalar

KERNELS = [
    *[Polynomial(degree, constant) for degree in (1, 2, 3, 4, 5) for constant in (1.0, 0.0, -0.7, 2.5)],
    EluKernel(),
    FeatureMap(exponential, positive=True),
    RandomFeatures(9),
    RandomFeatures(4, scale=0.3, seed=3, orthogonal=False),
    Uniform(),
]


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("similarity", KERNELS, ids=str)
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_features_reproduce_the_scores(similarity, dim, seed):
    query, key = similarity.prepare(double(2, 6, dim), double(2, 7, dim))
    phi_q, phi_k = similarity.query_features(query), similarity.key_features(key)
    assert phi_q.shape[-1] == phi_k.shape[-1] == similarity.feature_count(dim)
    scores = similarity.scores(query, key)
    wanted = scores.exp() if similarity.log_form else scores
    assert error(phi_q @ phi_k.mT, wanted) <= 1e-12


@pytest.mark.parametrize("name", SIMILARITIES)
def test_pairs_are_the_scores_one_by_one(name, seed):
    shape = Shape(heads=2, dim=1 if scalar(name) else 3, seed=seed)
    piece = SIMILARITIES[name](shape)
    similarity = piece.make(**piece.tensors)
    query, key = similarity.prepare(double(2, 4, shape.dim), double(2, 5, shape.dim))
    i, j = torch.arange(4).repeat_interleave(5), torch.arange(5).repeat(4)
    pairs = similarity.pairs(query[:, i], key[:, j])
    torch.testing.assert_close(pairs, similarity.scores(query, key).flatten(-2), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("constant", [1.0, 0.0, -0.7, 2.5])
def test_a_polynomial_is_what_it_says_up_to_a_factor_a_row(degree, constant, seed):
    similarity, q, k = Polynomial(degree, constant), double(2, 6, 3), 5 * double(2, 7, 3)
    ratio = similarity.scores(*similarity.prepare(q, k)) / (q @ k.mT + constant) ** degree
    assert error(ratio, ratio[..., :1].expand_as(ratio)) <= 1e-9
    assert similarity.positive == (degree % 2 == 0)
    features = similarity.key_features(similarity.prepare(q, k)[1]).shape[-1]
    assert similarity.feature_count(3) == features >= math.comb(3 + degree - (constant == 0), degree)


def test_the_mean_over_random_features_is_the_exponential():
    x = torch.tensor([[0.4, -0.3, 0.5]], dtype=torch.float64)
    y = torch.tensor([[-0.2, 0.6, 0.3]], dtype=torch.float64)
    for orthogonal in (True, False):
        estimates = []
        for seed in range(400):
            kernel = RandomFeatures(24, scale=1.0, seed=seed, orthogonal=orthogonal)
            w = kernel._directions(x)
            phi = [torch.exp(z @ w.mT - z.square().sum(-1, keepdim=True) / 2) for z in (x, y)]
            estimates.append(float((phi[0] * phi[1]).sum()) / 24)
        estimates = torch.tensor(estimates)
        deviation = estimates.std() / 400**0.5
        assert (
            abs(estimates.mean() - math.exp(float(x @ y.mT))) <= 5 * deviation
        )  # seeds are fixed: not by chance


SOME = [Everyone(), Causal(), Window(3), Graph.complete(12)]
SIZES = [(8, 3.0), (64, 2.0), (192, 1.0), (256, 1.0), (512, 1.0)]


@pytest.mark.parametrize(
    "dim, size, neighbors",
    # Of a part of keys this large, a listener may hear only such as are nothing beside the largest.
    [
        *((*sizes, neighbors) for sizes in SIZES for neighbors in SOME),
        *((*sizes, Everyone()) for sizes in [(8, 30.0), (64, 10.0), (256, 5.0)]),
    ],
    ids=str,
)
def test_random_features_are_not_rounded_to_nothing(dim, size, neighbors, seed):
    """Of wide heads and of large keys, either of which makes single features smaller than any float32."""
    similarity = RandomFeatures(40, seed=seed % 7)
    q, k = size * double(2, 12, dim), size * double(2, 12, dim)
    v, gradient = double(2, 12, 3), double(2, 12, 3)
    root, w = dim**-0.25, similarity._directions(q)
    exact = [x.requires_grad_() for x in (q, k, v)]
    exponents = (root * (q[:, :, None] + k[:, None])) @ w.mT  # (heads, N, M, features)
    logits = exponents.logsumexp(-1) - (root * k).square().sum(-1)[:, None] / 2
    if not isinstance(neighbors, Graph):
        allowed = neighbors.mask(Tile.whole(12, 12, q.device))
        logits = logits if allowed is None else logits.masked_fill(~allowed, -math.inf)
    wanted = logits.softmax(-1) @ v
    wanted = [wanted, *torch.autograd.grad(wanted, exact, gradient)]
    narrow = [x.detach().float().requires_grad_() for x in exact]
    plan = heedful.explain(*narrow, similarity=similarity, neighbors=neighbors)
    for name in {entry.name for entry in plan.candidates} - plan.rejected.keys():
        out = heedful.attend(*narrow, similarity=similarity, neighbors=neighbors, strategy=name)
        for a, b in zip([out, *torch.autograd.grad(out, narrow, gradient.float())], wanted, strict=True):
            assert a.isfinite().all()
            assert error(a, b, 0.05 * float(wanted[0].detach().norm())) <= 1e-3, name


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Polynomial(2.5), r"Polynomial\(degree=2.5\): must be a whole number, 1 or more"),
        (lambda: Polynomial(2, torch.tensor(0.5)), "Polynomial.constant.: takes a number.* no gradient"),
        (lambda: Polynomial(2, "a"), "Polynomial.constant.: takes a number"),
        (lambda: Additive("a"), "Additive.slope.: takes a number"),
        (lambda: RandomFeatures(2.5), "RandomFeatures.features=2.5.: must be a whole number"),
        (
            lambda: RandomFeatures(8, seed=None),
            "RandomFeatures.seed=None.: must be a whole number, 0 or more",
        ),
        (lambda: RandomFeatures(8, scale=-1.0), "RandomFeatures.scale=-1.0.: must be positive and finite"),
        (lambda: RandomFeatures(8, scale=torch.tensor(1.0)), "RandomFeatures.scale.: takes a number"),
        (lambda: Window("a"), "Window.width='a'.: must be a whole number"),
        (lambda: heedful.Rotary("a"), "Rotary.base.: takes a number"),
        (
            lambda: heedful.Alibi(torch.tensor([-math.inf])),
            "Alibi.slopes. is -inf at .0.; entries are finite",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(build, words):
    with pytest.raises((ValueError, TypeError), match=words):
        build()


def test_whole_numbers_may_be_numpys():
    degree, width = numpy.int64(3), numpy.int64(2)
    assert repr(Polynomial(degree)) == "Polynomial(degree=3)" and repr(Window(width)) == "Window(2)"


def test_a_map_may_hold_numbers_of_any_type():
    q, weight = torch.randn(2, 5, 4, dtype=torch.float64), torch.rand(4, 8, dtype=torch.float64)
    out = heedful.attend(q, q, q, similarity=FeatureMap(lambda x: torch.relu(x @ weight) + 0.1))
    phi = torch.relu(q @ weight) + 0.1
    weights = phi @ phi.mT
    torch.testing.assert_close(out, weights @ q / weights.sum(-1, keepdim=True))
    with pytest.raises(ValueError, match=r"cannot be tried on zeros of shape .1, 3.*size="):
        heedful.attend(q[..., :3], q[..., :3], q, similarity=FeatureMap(lambda x: x @ weight))


def test_a_function_must_return_scores():
    x = torch.randn(2, 5, 4)
    with pytest.raises(TypeError, match="fn must return a tensor of scores, got NoneType"):
        heedful.attend(x, x, x, similarity=ScoreFunction(lambda q, k: None))


@pytest.mark.parametrize("strategy", ["reference", "fused", "tiled", "sparse"])
def test_softmax_tends_to_argmax_as_its_scale_grows(strategy, seed):
    q, k, v = double(2, 5, 3), double(2, 8, 3), double(2, 8, 4)
    limit = heedful.attend(q, k, v, similarity=Argmax())
    scores = q @ k.mT
    gap = (scores.topk(2).values.diff().abs()).min()
    soft, hard = (
        heedful.attend(q, k, v, similarity=Softmax(scale=float(beta / gap)), strategy=strategy)
        for beta in (1, 50)
    )
    assert error(soft, limit) > 1e-3
    assert error(hard, limit) <= 1e-12
    assert torch.equal(limit, v.gather(-2, scores.argmax(-1)[..., None].expand(-1, -1, 4)))


def test_scale_zero_is_the_mean():
    q, v = double(2, 5, 3), double(2, 5, 4)
    out = heedful.attend(q, q, v, similarity=Softmax(scale=0.0))
    torch.testing.assert_close(out, v.mean(-2, keepdim=True).expand(2, 5, 4), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("strategy", ["reference", "fused", "tiled", "sparse"])
@pytest.mark.parametrize("shape", [(), (1,), (2,)])
def test_the_scale_gets_its_gradient(strategy, shape, seed):
    q, k, v = double(2, 3, 2), double(2, 4, 2), double(2, 4, 2)

    def run(scale):
        return heedful.attend(q, k, v, similarity=Softmax(scale=scale), strategy=strategy)

    assert torch.autograd.gradcheck(run, (torch.rand(shape, dtype=torch.float64).requires_grad_(),))


@pytest.mark.parametrize("strategy", ["reference", "tiled"])
def test_ties_share_and_queries_and_keys_get_no_gradient(strategy):
    q = torch.tensor([[1.0, 0.0], [0.0, 0.0]], requires_grad=True)
    k = torch.tensor([[2.0, 5.0], [2.0, -1.0], [1.0, 0.0]], requires_grad=True)
    v = torch.eye(3, requires_grad=True)
    out = heedful.attend(q, k, v, similarity=Argmax(), strategy=strategy)
    torch.testing.assert_close(out, torch.tensor([[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]]))
    gradients = torch.autograd.grad(out[:, 0].sum(), (q, k, v), allow_unused=True)
    for gradient in gradients[:2]:
        assert gradient is None or not gradient.any()
    torch.testing.assert_close(gradients[2][:, 0], out.detach().sum(0))


@pytest.mark.parametrize("neighbors", [Everyone(), Causal(), Window(1), Graph.complete(3)], ids=repr)
def test_a_mean_has_no_gradient_for_queries_and_keys(neighbors):
    """By no strategy: one that gave zeros would have an optimizer decay weights that another leaves alone."""
    q, k, v = torch.randn(3, 1, 3, 2).unbind()
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    plan = heedful.explain(q, k, v, similarity=Uniform(), neighbors=neighbors)
    for name in {entry.name for entry in plan.candidates} - plan.rejected.keys():
        out = heedful.attend(q, k, v, similarity=Uniform(), neighbors=neighbors, strategy=name)
        gradients = torch.autograd.grad(out.sum(), (q, k, v), allow_unused=True)
        assert gradients[:2] == (None, None) and gradients[2] is not None, name


def test_tied_keys_share_by_what_their_distance_says():
    x, v = torch.zeros(2, 1), torch.eye(2)
    table = torch.tensor([math.log(3.0), 0.0, -math.inf])  # from i to i+1, to itself, back
    out = heedful.attend(x, x, v, similarity=Argmax(), position=heedful.Relative(table))
    torch.testing.assert_close(out, torch.tensor([[0.25, 0.75], [0.0, 1.0]]))


def test_a_silenced_key_cannot_win():
    q = k = torch.tensor([[1.0], [5.0]])
    table = torch.tensor([-math.inf, 0.0, 0.0])
    out = heedful.attend(q, k, torch.eye(2), similarity=Argmax(), position=heedful.Relative(table))
    torch.testing.assert_close(out, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))


def test_a_feature_map_may_have_parameters(seed):
    phi = torch.nn.Sequential(torch.nn.Linear(3, 5, dtype=torch.float64), torch.nn.Softplus())
    q, k, v = double(2, 6, 3), double(2, 7, 3), double(2, 7, 2)
    similarity = FeatureMap(phi, positive=True)
    assert similarity.feature_count(3) == 5
    found = {}
    for strategy in ("reference", "factored", "tiled", "toeplitz"):
        out = heedful.attend(q, k, v, similarity=similarity, strategy=strategy)
        found[strategy] = torch.autograd.grad(out.square().sum(), list(phi.parameters()))
    for strategy, gradients in found.items():
        for gradient, wanted in zip(gradients, found["reference"], strict=True):
            assert error(gradient, wanted) <= 1e-9, strategy


def test_a_score_function_may_have_parameters(seed):
    slope = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    q, k, v = double(2, 6, 3), double(2, 7, 3), double(2, 7, 2)
    similarity = ScoreFunction(lambda q, k: -slope * torch.cdist(q, k))
    found = [
        torch.autograd.grad(
            heedful.attend(q, k, v, similarity=similarity, strategy=way).square().sum(), slope
        )[0]
        for way in ("reference", "tiled")
    ]
    assert found[0] != 0
    assert error(found[1], found[0]) <= 1e-9


@pytest.mark.parametrize("name", SIMILARITIES)
def test_the_repr_says_what_it_is(name):
    piece = SIMILARITIES[name](Shape())
    similarity = piece.make(**piece.tensors)
    assert type(similarity).__name__ in repr(similarity)
    assert similarity.facts(3).name == repr(similarity)


@pytest.mark.parametrize(
    "make, kind, says",
    [
        (lambda: Softmax(scale=math.inf), ValueError, "use Argmax"),
        (lambda: Softmax(scale=math.nan), ValueError, "finite"),
        (lambda: Polynomial(0), ValueError, "1 or more"),
        (lambda: Polynomial(1.5), ValueError, "whole number"),
        (lambda: Polynomial(2, math.inf), ValueError, "finite"),
        (lambda: FeatureMap(3), TypeError, "callable"),
        (lambda: ScoreFunction(None), TypeError, "callable"),
        (lambda: RandomFeatures(0), ValueError, "1 or more"),
        (lambda: Additive(slope=1.5), ValueError, r"\[0, 1\]"),
        (lambda: Additive(weight=torch.ones(1, 1, 1)), TypeError, "shape"),
    ],
)
def test_a_similarity_that_makes_no_sense_says_so(make, kind, says):
    with pytest.raises(kind, match=says):
        make()


@pytest.mark.parametrize(
    "similarity, query, key, says",
    [
        (Softmax(), 3, 4, "key has 4 features, query has 3"),
        (Additive(), 3, 3, "takes 1 of each"),
        (Additive(weight=torch.ones(2)), 3, 3, "takes 2 of each"),
        (Additive(weight=torch.ones(3, 3)), 3, 3, "3 rows for 2 heads"),
        (Softmax(scale=torch.ones(3)), 3, 3, "3 entries for 2 heads"),
    ],
)
def test_a_similarity_that_does_not_fit_the_call_says_so(similarity, query, key, says):
    for _ in range(2):
        with pytest.raises(ValueError, match=says):
            heedful.attend(
                torch.ones(2, 5, query), torch.ones(2, 5, key), torch.ones(2, 5, 1), similarity=similarity
            )
