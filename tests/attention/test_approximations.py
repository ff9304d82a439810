"""Low rank, projections, random features: exact where they should be, and never uninvited."""

from __future__ import annotations

import math

import pytest
import torch

import heedful
from heedful import Causal, Everyone, Polynomial, Softmax
from heedful.attention.strategies import STRATEGIES, LowRank, Projected, Random

from .cases import error

APPROXIMATE = [name for name, strategy in STRATEGIES.items() if not strategy.exact]


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def few_distinct(count: int, length: int, dim: int):
    """Rows of which only so many differ, in random order."""
    return double(2, count, dim)[:, torch.randint(count, (length,))]


@pytest.mark.parametrize(
    "similarity", [Softmax(), Softmax(scale=2.0), Polynomial(), heedful.EluKernel()], ids=str
)
def test_low_rank_is_exact_where_the_similarity_matrix_is_of_low_rank(similarity, seed):
    q, k, v = double(2, 60, 3), few_distinct(6, 80, 3), double(2, 80, 4)
    wanted = heedful.attend(q, k, v, similarity=similarity)
    found = heedful.attend(q, k, v, similarity=similarity, strategy=LowRank(rank=24), exact=False)
    assert error(found, wanted) <= 1e-8


def test_low_rank_is_exact_for_few_distinct_queries_too(seed):
    q, k, v = few_distinct(5, 60, 3), double(2, 80, 3), double(2, 80, 4)
    found = heedful.attend(q, k, v, strategy=LowRank(rank=24), exact=False)
    assert error(found, heedful.attend(q, k, v)) <= 1e-8


def test_the_error_of_low_rank_falls_with_the_rank(seed):
    q, k, v = double(15, 200, 2), double(15, 200, 2), double(15, 200, 4)
    wanted = heedful.attend(q, k, v)
    medians = []
    for rank in (8, 24, 64):
        found = heedful.attend(q, k, v, strategy=LowRank(rank), exact=False)
        medians.append(sorted(error(*pair) for pair in zip(found, wanted, strict=True))[7])
    assert medians[0] > 5 * medians[1] > 25 * medians[2]
    assert medians[2] <= 1e-3


@pytest.mark.parametrize("rank, length", [(8, 64), (5, 35), (16, 16 * 3)])
def test_averaged_projections_are_exact_for_keys_and_values_constant_over_runs(rank, length, seed):
    q = double(2, 40, 3)
    k, v = (double(2, rank, width).repeat_interleave(length // rank, 1) for width in (3, 4))
    found = heedful.attend(q, k, v, strategy=Projected(rank), exact=False)
    assert error(found, heedful.attend(q, k, v)) <= 1e-12


@pytest.mark.parametrize("similarity", [Softmax(), Polynomial()], ids=str)
def test_given_projections_are_applied_along_the_keys(similarity, seed):
    q, k, v = double(2, 40, 3), double(2, 30, 3), double(2, 30, 4)
    e, f = double(7, 30), double(7, 30)
    way = Projected(7, key_projection=e, value_projection=f)
    found = heedful.attend(q, k, v, similarity=similarity, strategy=way, exact=False)
    assert error(found, heedful.attend(q, e @ k, f @ v, similarity=similarity)) <= 1e-12


def test_projections_get_gradients(seed):
    q, k, v = double(1, 9, 3), double(1, 8, 3), double(1, 8, 2)

    def run(e, f):
        way = Projected(4, key_projection=e, value_projection=f)
        return heedful.attend(q, k, v, strategy=way, exact=False)

    assert torch.autograd.gradcheck(run, (double(4, 8).requires_grad_(), double(4, 8).requires_grad_()))


@pytest.mark.parametrize("neighbors", [Everyone(), Causal()], ids=str)
def test_the_error_of_random_features_falls_like_one_over_their_root(neighbors):
    generator = torch.Generator().manual_seed(1)
    # Short vectors: for long ones the features' tails are so heavy that the law shows only beyond millions.
    q, k = (0.3 * torch.randn(1, 64, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    v = torch.randn(1, 64, 4, generator=generator, dtype=torch.float64)
    wanted = heedful.attend(q, k, v, neighbors=neighbors)
    counts, errors = [16, 64, 256, 1024, 4096], []
    for features in counts:
        ways = [Random(features, seed) for seed in range(12)]
        found = [heedful.attend(q, k, v, neighbors=neighbors, strategy=way, exact=False) for way in ways]
        errors.append(math.sqrt(sum(error(x, wanted) ** 2 for x in found) / len(found)))
    x, y = torch.tensor(counts).log().double(), torch.tensor(errors).log().double()
    slope = ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()
    assert abs(slope + 0.5) <= 0.1
    assert errors[-1] <= 0.02


def test_random_features_are_nearly_unbiased():
    """Numerator and normaliser are unbiased; their ratio is, up to 1/features: far below a draw's error."""
    generator = torch.Generator().manual_seed(2)
    q, k, v = (0.7 * torch.randn(1, 32, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    wanted = heedful.attend(q, k, v)
    draws = torch.stack(
        [heedful.attend(q, k, v, strategy=Random(256, seed), exact=False) for seed in range(200)]
    )
    assert error(draws.mean(0), wanted) <= 0.2 * error(draws[0], wanted)


# Of a part of keys that large, a listener may hear only such as are nothing beside the largest.
@pytest.mark.parametrize(
    "dim, size, neighbors", [(32, 6.0, Everyone()), (512, 1.0, Everyone()), (512, 1.0, Causal())], ids=str
)
def test_random_features_are_those_of_the_similarity(dim, size, neighbors, seed):
    """Wide heads and large keys too, of which single features are smaller than any float32."""
    q, k, v = size * double(2, 12, dim), size * double(2, 12, dim), double(2, 12, 3)
    wanted = heedful.attend(q, k, v, similarity=heedful.RandomFeatures(40), neighbors=neighbors)
    q, k, v = (x.float() for x in (q, k, v))
    found = heedful.attend(q, k, v, neighbors=neighbors, strategy=Random(40), exact=False)
    assert error(found, wanted) <= 1e-3


@pytest.mark.parametrize("name", APPROXIMATE)
def test_gradients_are_those_of_the_approximation(name, seed):
    ways = {"lowrank": LowRank(4), "projected": Projected(4), "random": Random(8)}
    q, k, v = (double(1, 6, 2).requires_grad_() for _ in range(3))
    assert torch.autograd.gradcheck(
        lambda *x: heedful.attend(*x, strategy=ways[name], exact=False), (q, k, v)
    )


@pytest.mark.parametrize("name", APPROXIMATE)
@pytest.mark.parametrize("length", [300, 1 << 20])
def test_nothing_approximate_is_chosen_unless_admitted(name, length):
    x = torch.empty(1, 4, length, 16, device="meta")
    plan = heedful.explain(x, x, x)
    assert STRATEGIES[plan.strategy].exact
    assert "exact=False" in plan.rejected[name]
    admitted = heedful.explain(x, x, x, exact=False)
    assert name not in admitted.rejected
    small = torch.randn(1, 300, 16)
    for strategy in (name, STRATEGIES[name]):
        with pytest.raises(ValueError, match="refuses: approximates"):
            heedful.attend(small, small, small, strategy=strategy)


def test_long_sequences_are_approximated_when_admitted():
    x = torch.empty(1, 4, 1 << 20, 16, device="meta")
    assert heedful.explain(x, x, x, exact=False).strategy in APPROXIMATE


@pytest.mark.parametrize("name", APPROXIMATE)
def test_what_an_approximation_cannot_do_it_refuses(name):
    x = torch.randn(1, 300, 4)
    for call in (
        {"neighbors": heedful.Window(3)},
        {"position": heedful.Relative(torch.zeros(599))},
        {"dropout": 0.1},
    ):
        with pytest.raises(ValueError, match="refuses"):
            heedful.attend(x, x, x, strategy=name, exact=False, **call)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: LowRank(0), "1 or more"),
        (lambda: Projected(0), "1 or more"),
        (lambda: Random(0), "1 or more"),
    ],
)
def test_options_that_make_no_sense_say_so(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_a_projection_of_another_length_says_so():
    x = torch.randn(1, 30, 4)
    with pytest.raises(ValueError, match="takes 20 keys, got 30"):
        heedful.attend(x, x, x, strategy=Projected(5, key_projection=torch.zeros(5, 20)), exact=False)


@pytest.mark.parametrize("rank", [4, 16, 64])
def test_low_rank_stays_among_the_values(rank, seed):
    """Of a matrix of full rank it promises nothing else."""
    q, k, v = torch.randn(3, 2, 600, 8)
    found = heedful.attend(q, k, v, strategy=LowRank(rank), exact=False)
    assert found.max() <= v.max() and found.min() >= v.min()


def test_low_rank_gets_nearer_with_its_rank(seed):
    """Soft scores: exp(q·k) is nearly its first terms, so a few dozen rows hold most of the matrix."""
    q, k, v = torch.randn(3, 2, 600, 8)
    q, k = q / 2, k / 2
    wanted = heedful.attend(q, k, v)
    of_mean = error(v.mean(-2, keepdim=True).expand_as(v), wanted)
    few, many = (
        error(heedful.attend(q, k, v, strategy=LowRank(rank), exact=False), wanted) for rank in (16, 64)
    )
    assert many < few / 2 and many < of_mean / 5
