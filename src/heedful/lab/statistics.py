"""What many seeds say: means with spread and interval, differences paired by seed, agreement with figures.

Everything here takes plain lists of numbers and returns small frozen records that print as a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Interval = tuple[float, float]


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation (`ddof` 0 divides by n, 1 by n − 1) and bootstrap interval of the mean."""

    n: int
    mean: float
    std: float | None
    ddof: int
    interval: Interval | None
    level: float = 0.95

    def __str__(self) -> str:
        if self.std is None or self.n == 1:
            return f"{self.mean:.4g} (one seed)"
        if self.std <= 1e-12 * abs(self.mean):  # rounding, not spread
            return f"{self.mean:.4g} ± 0"
        places = max(0, 1 - math.floor(math.log10(self.std)))  # two digits of the spread
        if places > 6:
            return f"{self.mean:.2g} ± {self.std:.2g}"
        return f"{self.mean:.{places}f} ± {self.std:.{places}f}"


def summarize(values: Sequence[float], *, ddof: int = 1, level: float = 0.95, seed: int = 0) -> Summary:
    """The mean of `values`, how they spread, and where another such mean would lie.

    >>> print(summarize([81.0, 82.0, 83.0]))
    82.0 ± 1.0
    """
    numbers = _numbers("summarize()", values)
    n = len(numbers)
    std = float(numbers.std(ddof=ddof)) if n > ddof else None
    return Summary(n, float(numbers.mean()), std, ddof, bootstrap(values, level=level, seed=seed), level)


def bootstrap(
    values: Sequence[float], *, level: float = 0.95, resamples: int = 9999, seed: int = 0
) -> Interval | None:
    """An interval for the mean by resampling (bias-corrected and accelerated); None from fewer than two.

    >>> low, high = bootstrap([1.0, 2.0, 3.0, 4.0])
    >>> 1 < low < 2.5 < high < 4
    True
    """
    numbers = _numbers("bootstrap()", values)
    if len(numbers) < 2:
        return None
    if np.ptp(numbers) <= 1e-12 * np.abs(numbers).max():  # rounding, which resampling would take for a spread
        return float(numbers[0]), float(numbers[0])
    from scipy import stats

    found = stats.bootstrap(
        (numbers,), np.mean, confidence_level=level, n_resamples=resamples, rng=np.random.default_rng(seed)
    ).confidence_interval
    if math.isnan(found.low) or math.isnan(found.high):  # the correction fails on a few very lopsided samples
        found = stats.bootstrap(
            (numbers,), np.mean, confidence_level=level, n_resamples=resamples, method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


@dataclass(frozen=True)
class Difference:
    """How much larger one variant's values are than another's at the same seeds."""

    n: int
    mean: float
    interval: Interval | None
    p: float | None
    level: float = 0.95

    @property
    def clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.mean:+.3g} (one seed: no interval)"
        low, high = self.interval
        words = "differs" if self.clear else "no clear difference"
        return f"{words}: {self.mean:+.3g}, {100 * self.level:g} % CI {low:+.3g} … {high:+.3g}, n = {self.n}"


def paired(a: Mapping[int, float], b: Mapping[int, float], *, level: float = 0.95) -> Difference:
    """a − b over the seeds both have, with Student's interval and p of a paired t-test.

    >>> print(paired({0: 3.0, 1: 4.0, 2: 5.0}, {0: 1.0, 1: 2.1, 2: 2.9}))
    differs: +2, 95 % CI +1.75 … +2.25, n = 3
    """
    seeds = sorted(set(a) & set(b))
    if not seeds:
        raise ValueError("paired(): the two have no seed in common; run both with the same seeds.")
    d = _numbers("paired()", [a[seed] - b[seed] for seed in seeds])
    mean, n = float(d.mean()), len(d)
    if n < 2:
        return Difference(n, mean, None, None, level)
    error = float(d.std(ddof=1)) / math.sqrt(n)
    return Difference(n, mean, *_student(mean, error, n - 1, level), level)


def _student(mean: float, error: float, freedom: float, level: float) -> tuple[Interval, float]:
    """Interval of a mean with a standard error, and the p of its being zero."""
    if error == 0:
        return (mean, mean), (1.0 if mean == 0 else 0.0)
    from scipy import stats

    reach = float(stats.t.ppf(0.5 + level / 2, freedom)) * error
    return (mean - reach, mean + reach), float(2 * stats.t.sf(abs(mean) / error, freedom))


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for being many (Holm): reject those still below the level, and the family's is kept.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p)), key=lambda k: p[k])
    corrected, highest = [0.0] * len(p), 0.0
    for rank, k in enumerate(order):
        highest = max(highest, min(1.0, (len(p) - rank) * p[k]))
        corrected[k] = highest
    return corrected


@dataclass(frozen=True)
class Figure:
    """A published number: its value, spread over so many runs if told, and how near counts as the same."""

    value: float
    std: float | None = None
    runs: int | None = None
    within: float = 1.0
    source: str = ""

    def __str__(self) -> str:
        return f"{self.value:g}" + (f" ± {self.std:g}" if self.std is not None else "")


@dataclass(frozen=True)
class Agreement:
    """What our values say about a published figure, in words first."""

    verdict: str  # reproduced, differs or undecided
    difference: float
    interval: Interval | None
    p_equivalent: float | None
    within: float
    n: int

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.verdict}: {self.difference:+.3g} from one seed"
        low, high = self.interval
        detail = f"{self.difference:+.3g}, 95 % CI {low:+.3g} … {high:+.3g}"
        if self.verdict == "reproduced":
            return f"reproduced within ±{self.within:g} ({detail})"
        if self.verdict == "differs":
            return f"differs: {detail}"
        return f"undecided after {self.n} seeds: {detail}, wanted within ±{self.within:g}"


def against(values: Sequence[float], figure: Figure, *, level: float = 0.95) -> Agreement:
    """Do these values agree with a published figure? Two one-sided tests say yes, an interval says no.

    "reproduced": the difference lies within ±`figure.within`, shown at 1 − level. "differs": its interval
    leaves zero out and it was not shown to be that small. Otherwise more seeds are needed. Where the
    figure's own spread and number of runs are known, they count.

    >>> print(against([81.2, 81.7, 81.6, 82.0, 81.4], Figure(81.5)))
    reproduced within ±1 (+0.08, 95 % CI -0.297 … +0.457)
    """
    numbers = _numbers("against()", values)
    n, difference = len(numbers), float(numbers.mean()) - figure.value
    if n < 2:
        return Agreement("undecided", difference, None, None, figure.within, n)
    ours = float(numbers.var(ddof=1)) / n
    theirs = figure.std**2 / figure.runs if figure.std is not None and figure.runs else 0.0
    error = math.sqrt(ours + theirs)
    freedom = _freedom(ours, n, theirs, figure.runs)
    interval, _ = _student(difference, error, freedom, level)
    if error == 0:
        p = 0.0 if abs(difference) <= figure.within else 1.0
    else:
        from scipy import stats

        p = float(stats.t.sf((figure.within - abs(difference)) / error, freedom))
    if p <= 1 - level:
        verdict = "reproduced"
    else:
        verdict = "undecided" if interval[0] <= 0 <= interval[1] else "differs"
    return Agreement(verdict, difference, interval, p, figure.within, n)


def _freedom(ours: float, n: int, theirs: float, runs: int | None) -> float:
    """Welch's degrees of freedom."""
    if not theirs or not runs or runs < 2:
        return n - 1
    return (ours + theirs) ** 2 / (ours**2 / (n - 1) + theirs**2 / (runs - 1))


def _numbers(where: str, values: Sequence[float]) -> np.ndarray:
    numbers = np.asarray(list(values), dtype=float)
    if numbers.size == 0:
        raise ValueError(f"{where}: no values.")
    if not np.isfinite(numbers).all():
        bad = int((~np.isfinite(numbers)).argmax())
        raise ValueError(f"{where}: value {bad} is {numbers[bad]}; statistics need finite numbers.")
    return numbers
