"""Statistics against scipy, against simulation, and at their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from heedful.lab.statistics import Figure, against, bootstrap, holm, paired, summarize


def draws(seed, n=12, mean=80.0, std=2.0):
    return np.random.default_rng(seed).normal(mean, std, n).tolist()


def test_summary_is_numpy(seed):
    values = draws(seed)
    for ddof in (0, 1):
        found = summarize(values, ddof=ddof)
        assert found.mean == pytest.approx(np.mean(values))
        assert found.std == pytest.approx(np.std(values, ddof=ddof))
        assert found.ddof == ddof and found.n == 12


def test_summary_of_little():
    assert summarize([3.0]).std is None and summarize([3.0]).interval is None
    assert str(summarize([3.0])) == "3 (one seed)"
    assert summarize([3.0], ddof=0).std == 0
    same = summarize([100.0] * 5)
    assert same.interval == (100.0, 100.0) and str(same) == "100 ± 0"
    with pytest.raises(ValueError, match="no values"):
        summarize([])
    with pytest.raises(ValueError, match="value 1 is nan"):
        summarize([1.0, math.nan])


def test_bootstrap_covers():
    """A 90 % interval holds the mean about nine times in ten; small samples a little less."""
    inside = 0
    for n in range(200):
        low, high = bootstrap(draws(n, n=20, mean=0.0), level=0.9, resamples=999, seed=n)
        inside += low <= 0 <= high
    assert 0.8 <= inside / 200 <= 0.97


def test_bootstrap_repeats_itself(seed):
    values = draws(seed)
    assert bootstrap(values, seed=3) == bootstrap(values, seed=3)


def test_bootstrap_of_a_lopsided_sample():
    low, high = bootstrap([0.0] * 9 + [1.0])
    assert 0 <= low <= 0.1 <= high <= 1


def test_paired_is_the_paired_t_test(seed):
    a, b = dict(enumerate(draws(seed))), dict(enumerate(draws(seed + 1, mean=81)))
    found = paired(a, b)
    expected = stats.ttest_rel(list(a.values()), list(b.values()))
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue)
    assert found.interval == pytest.approx((interval.low, interval.high))
    assert paired(b, a).mean == pytest.approx(-found.mean)


def test_pairs_are_made_by_seed():
    found = paired({0: 1.0, 1: 2.0, 5: 9.0}, {1: 1.0, 0: 0.0, 7: 100.0})
    assert (found.n, found.mean, found.p) == (2, 1.0, 0.0)
    assert paired({0: 1.0}, {0: 1.0}).interval is None
    assert not paired({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}).clear
    with pytest.raises(ValueError, match="no seed in common"):
        paired({0: 1.0}, {1: 1.0})


def test_holm_keeps_the_familys_level():
    """Twenty true null hypotheses at 5 %: without correction two families in three raise an alarm."""
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(400):
        alarms += min(holm(rng.uniform(size=20).tolist())) < 0.05
    assert alarms / 400 < 0.09
    assert holm([]) == []
    assert holm([0.5, 0.9]) == [1.0, 1.0]


def test_verdicts(seed):
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=30)
    noise = (noise - noise.mean()) / noise.std(ddof=1) * 0.5  # exactly mean 0, std 0.5: standard error 0.091
    assert against((81.5 + noise).tolist(), Figure(81.5)).verdict == "reproduced"
    assert against((82.0 + noise).tolist(), Figure(81.5)).verdict == "reproduced"  # differs, by less than 1
    assert against((83.0 + noise).tolist(), Figure(81.5)).verdict == "differs"
    assert against((80.0 + noise).tolist(), Figure(81.5)).difference == pytest.approx(-1.5)
    few = against([80.0, 83.5], Figure(81.5))
    assert few.verdict == "undecided" and "after 2 seeds" in str(few)
    assert against([81.5], Figure(81.5)).verdict == "undecided"


def test_verdicts_without_spread():
    assert against([100.0] * 3, Figure(100.0, within=0.5)).verdict == "reproduced"
    assert against([100.0] * 3, Figure(99.0, within=0.5)).verdict == "differs"


def test_a_published_spread_counts(seed):
    values = draws(seed, n=10, mean=81.5, std=0.2)
    sure, unsure = against(values, Figure(81.5)), against(values, Figure(81.5, std=5.0, runs=10))
    width = lambda found: found.interval[1] - found.interval[0]  # noqa: E731
    assert width(unsure) > 5 * width(sure)
    assert unsure.verdict != "reproduced"
    expected = stats.ttest_ind_from_stats(
        np.mean(values), np.std(values, ddof=1), 10, 81.5, 5.0, 10, equal_var=False
    )
    assert (abs(np.mean(values) - 81.5) > 0) and expected.pvalue > 0.05


def test_equivalence_is_two_one_sided_tests(seed):
    values, figure = draws(seed, n=8, mean=81.6, std=1.0), Figure(81.5, within=1.5)
    low = stats.ttest_1samp(values, figure.value - 1.5, alternative="greater").pvalue
    high = stats.ttest_1samp(values, figure.value + 1.5, alternative="less").pvalue
    assert against(values, figure).p_equivalent == pytest.approx(max(low, high))
