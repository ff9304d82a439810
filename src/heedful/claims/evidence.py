"""What was measured, and whether it is what was wanted.

A claim yields findings, seed after seed. Findings of one name are put together into one piece of evidence by
one of four judges: an identity by its worst residual, a bound by its worst case, a mean by its interval,
an exponent by a fit over sizes. Curves and notes are shown, not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

ROLES = ("stated", "detail", "corrected", "shown")
SURE = 1 - 1e-6  # level of an interval over many samples: a claim must come out alike for any seed


@dataclass(frozen=True)
class Finding:
    """One measurement at one seed."""

    name: str
    kind: str
    role: str
    values: list[Any]
    wanted: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Evidence:
    """A measured number with what was wanted of it; `holds` is None where that cannot be told."""

    name: str
    kind: str  # identity, bound, mean, exponent, curve or note
    role: str  # stated: the claim itself; detail: more that is said; corrected: what we say instead; shown
    value: float | None
    wanted: str
    holds: bool | None
    interval: tuple[float, float] | None = None
    measured: str = ""  # small tensors and words, as found
    data: dict[str, Any] = field(default_factory=dict)  # points of a curve or a fit

    def __str__(self) -> str:
        if self.kind in ("note", "curve"):
            return f"{self.name}: {self.measured}" if self.measured else self.name
        low, high = self.interval or (None, None)
        spread = f" ({low:.4g} … {high:.4g})" if low is not None and high is not None else ""
        found = f"{_short(self.value)}{spread}, wanted {self.wanted}"
        if self.kind == "exponent":
            found = f"exponent of {self.data['unit']} in {self.data['size']} = {found}"
        return f"{self.name}: {self.measured + '; ' if self.measured else ''}{found}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Evidence:
        interval = found.get("interval")
        return cls(**{**found, "interval": None if interval is None else tuple(interval)})


def same(name: str, found, expected, *, tolerance: float = 1e-10, role: str = "stated") -> Finding:
    """found = expected, to `tolerance` of the larger of 1 and the largest entry."""
    found, expected = (_double(x) for x in (found, expected))
    if found.shape != expected.shape:
        residual = math.inf
    else:
        gap = torch.where(found == expected, 0.0, (found - expected).abs())  # −∞ is equal to −∞
        size = (
            max(1.0, float(expected[expected.isfinite()].abs().max())) if expected.isfinite().any() else 1.0
        )
        residual = float(gap.nan_to_num(math.inf, math.inf).max()) / size if gap.numel() else 0.0
    small = found.numel() <= 6 and expected.numel() <= 6
    words = f"{_tensor(found)} against {_tensor(expected)}" if small else ""
    return Finding(name, "identity", role, [(residual, words)], {"tolerance": tolerance})


def at_most(name: str, value: float, bound: float, *, role: str = "stated") -> Finding:
    """value ≤ bound, at every seed."""
    return Finding(name, "bound", role, [float(value)], {"most": float(bound)})


def at_least(name: str, value: float, bound: float, *, role: str = "stated") -> Finding:
    """value ≥ bound, at every seed."""
    return Finding(name, "bound", role, [float(value)], {"least": float(bound)})


def mean(
    name: str,
    samples,
    *,
    equals: float | None = None,
    within: float = 0.05,
    above: float | None = None,
    below: float | None = None,
    level: float = SURE,
    role: str = "stated",
) -> Finding:
    """The mean of all samples of all seeds equals a number, or lies above or below one, by its interval.

    To be equal, the interval must hold the number and reach no further than `within` of its size (or of 1).
    """
    values = _double(samples).reshape(-1)
    moments = (len(values), float(values.mean()), float(values.var(correction=0)) if len(values) else 0.0)
    wanted = {"equals": equals, "within": within, "above": above, "below": below, "level": level}
    return Finding(name, "mean", role, [moments], wanted)


def exponent(
    name: str,
    sizes: Sequence[float],
    costs: Sequence[float],
    *,
    equals: float | None = None,
    most: float | None = None,
    within: float = 0.1,
    unit: str = "cost",
    size: str = "length",
    role: str = "stated",
) -> Finding:
    """cost ∝ size^p with p within so much of `equals`, or no more than that above `most`.

    A line fitted to the logarithms of five sizes or more.
    """
    if (equals is None) == (most is None):
        raise ValueError(f"exponent({name!r}): takes equals or most.")
    if len(set(sizes)) < 5:
        raise ValueError(f"exponent({name!r}): takes five sizes or more, got {len(set(sizes))}.")
    points = [(float(n), float(c)) for n, c in zip(sizes, costs, strict=True)]
    wanted = {"equals": equals, "most": most, "within": within, "unit": unit, "size": size}
    return Finding(name, "exponent", role, points, wanted)


def curve(
    panel: str,
    label: str,
    x: Sequence[float],
    y: Sequence[float],
    *,
    across: str,
    up: str,
    log: str = "",
    bound: bool = False,
) -> Finding:
    """A line of the figure: `panel` names the axes it is in, `log` is "", "x", "y" or "xy"."""
    points = [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
    wanted = {"panel": panel, "label": label, "across": across, "up": up, "log": log, "bound": bound}
    return Finding(f"{panel}: {label}", "curve", "shown", points, wanted)


def note(name: str, value: Any, **data: Any) -> Finding:
    """Said beside the evidence, not judged."""
    return Finding(name, "note", "shown", [value], data)


def put_together(findings: Sequence[Finding]) -> Evidence:
    """All findings of one name, of one seed or of many, as one piece of evidence."""
    return _JUDGES[findings[0].kind](findings)


def _identity(findings: Sequence[Finding]) -> Evidence:
    first = findings[0]
    worst, words = max((f.values[0] for f in findings), key=lambda pair: pair[0])
    tolerance = first.wanted["tolerance"]
    return Evidence(
        first.name, "identity", first.role, worst, f"≤ {tolerance:g}", worst <= tolerance, measured=words
    )


def _bound(findings: Sequence[Finding]) -> Evidence:
    first = findings[0]
    pairs = [(f.values[0], f.wanted) for f in findings]
    if "most" in first.wanted:
        value, wanted = max(pairs, key=lambda p: p[0] - p[1]["most"])
        bound, sign, holds = wanted["most"], "≤", value <= wanted["most"]
    else:
        value, wanted = min(pairs, key=lambda p: p[0] - p[1]["least"])
        bound, sign, holds = wanted["least"], "≥", value >= wanted["least"]
    return Evidence(first.name, "bound", first.role, value, f"{sign} {_short(bound)}", holds)


def _mean(findings: Sequence[Finding]) -> Evidence:
    from scipy import stats

    first, wanted = findings[0], findings[0].wanted
    parts = [f.values[0] for f in findings]
    n = sum(count for count, _, _ in parts)
    centre = sum(count * m for count, m, _ in parts) / n
    spread = sum(count * (v + (m - centre) ** 2) for count, m, v in parts)
    error = math.sqrt(spread / max(1, n - 1) / n) if n > 1 else math.inf
    reach = float(stats.t.ppf(0.5 + wanted["level"] / 2, max(1, n - 1))) * error if error else 0.0
    low, high = centre - reach, centre + reach
    holds: bool | None
    if wanted["equals"] is not None:
        target, room = wanted["equals"], wanted["within"] * max(1.0, abs(wanted["equals"]))
        words = f"{_short(target)} in an interval of ±{_short(room)} or less"
        holds = False if not low <= target <= high else (None if reach > room else True)
    elif wanted["above"] is not None:
        words = f"> {_short(wanted['above'])}"
        holds = True if low > wanted["above"] else False if high < wanted["above"] else None
    else:
        words = f"< {_short(wanted['below'])}"
        holds = True if high < wanted["below"] else False if low > wanted["below"] else None
    return Evidence(first.name, "mean", first.role, centre, words, holds, (low, high))


def _exponent(findings: Sequence[Finding]) -> Evidence:
    import numpy as np
    from scipy import stats

    first, wanted = findings[0], findings[0].wanted
    points = sorted(point for f in findings for point in f.values)
    x, y = np.log(np.array(points)).T
    fit = stats.linregress(x, y)
    reach = float(stats.t.ppf(0.975, max(1, len(x) - 2)) * fit.stderr)
    low, high = fit.slope - reach, fit.slope + reach
    if wanted["most"] is None:
        words = f"{wanted['equals']:g} ± {wanted['within']:g}"
        holds = bool(abs(fit.slope - wanted["equals"]) <= wanted["within"])
    else:
        words = f"≤ {wanted['most']:g} + {wanted['within']:g}"
        holds = bool(fit.slope <= wanted["most"] + wanted["within"])
    data = {"points": points, "slope": float(fit.slope), "start": float(fit.intercept), **wanted}
    return Evidence(
        first.name,
        "exponent",
        first.role,
        float(fit.slope),
        words,
        holds,
        (float(low), float(high)),
        data=data,
    )


def _curve(findings: Sequence[Finding]) -> Evidence:
    """Means over seeds, with the smallest and the largest."""
    by: dict[float, list[float]] = {}
    for f in findings:
        for x, y in f.values:
            by.setdefault(x, []).append(y)
    rows = [(x, sum(ys) / len(ys), min(ys), max(ys)) for x, ys in sorted(by.items())]
    return Evidence(
        findings[0].name, "curve", "shown", None, "", None, data={"rows": rows, **findings[0].wanted}
    )


def _note(findings: Sequence[Finding]) -> Evidence:
    values = [f.values[0] for f in findings]
    if all(isinstance(v, (int, float)) for v in values):
        centre = sum(values) / len(values)
        spread = f" ({_short(min(values))} … {_short(max(values))})" if max(values) > min(values) else ""
        return Evidence(
            findings[0].name, "note", "shown", float(centre), "", None, measured=_short(centre) + spread
        )
    return Evidence(
        findings[0].name, "note", "shown", None, "", None, measured=str(values[0]), data=findings[0].wanted
    )


_JUDGES: dict[str, Callable[[Sequence[Finding]], Evidence]] = {
    "identity": _identity,
    "bound": _bound,
    "mean": _mean,
    "exponent": _exponent,
    "curve": _curve,
    "note": _note,
}


def _double(x) -> torch.Tensor:
    return x.detach().double() if isinstance(x, torch.Tensor) else torch.tensor(x, dtype=torch.float64)


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _tensor(x: torch.Tensor) -> str:
    def words(part) -> str:
        if isinstance(part, list):
            return f"[{', '.join(words(each) for each in part)}]"
        return _short(part)

    return words(x.tolist())
