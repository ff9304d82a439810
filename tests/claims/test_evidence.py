"""The four judges, and the verdict they add up to."""

from __future__ import annotations

import math

import pytest
import torch

from heedful.claims import Evidence, at_least, at_most, curve, exponent, judge, mean, note, same
from heedful.claims.evidence import put_together
from heedful.claims.trace import edges


def test_an_identity_is_as_good_as_its_worst_seed():
    found = put_together([same("x", 1.0, 1.0), same("x", 1.0, 1.5), same("x", 2.0, 2.0)])
    assert (
        found.value == pytest.approx(0.5 / 1.5) and found.holds is False and "1 against 1.5" in found.measured
    )
    assert put_together([same("x", [1, -math.inf], [1, -math.inf])]).holds
    assert not put_together([same("x", [1.0, 2.0], [1.0])]).holds
    assert not put_together([same("x", math.nan, 1.0)]).holds
    assert (
        not put_together([same("x", 1e9 + 1, 1e9)]).holds and put_together([same("x", 1e9 + 1e-3, 1e9)]).holds
    )


def test_a_bound_is_kept_at_every_seed():
    assert put_together([at_most("x", 1, 2), at_most("x", 2, 2)]).holds
    assert not put_together([at_most("x", 1, 2), at_most("x", 2.1, 2)]).holds
    worst = put_together([at_least("x", 5, 1), at_least("x", 2, 1)])
    assert worst.holds and worst.value == 2
    assert not put_together([at_least("x", math.nan, 1)]).holds


def test_a_mean_is_judged_by_its_interval(seed):
    x = torch.randn(20_000, dtype=torch.float64) + 3
    halves = [mean("x", part, equals=3.0) for part in x.split(7000)]
    found = put_together(halves)
    assert found.holds and found.interval[0] < 3 < found.interval[1]
    assert found.value == pytest.approx(float(x.mean()))
    assert put_together([mean("x", x, equals=3.2)]).holds is False
    assert put_together([mean("x", x[:20], equals=3.0, within=0.01)]).holds is None
    assert put_together([mean("x", x, above=2.5)]).holds and put_together([mean("x", x, below=3.5)]).holds
    assert put_together([mean("x", x, above=3.5)]).holds is False
    assert put_together([mean("x", x[:1], above=0.0)]).holds is None


def test_an_exponent_is_fitted(seed):
    sizes = [10, 20, 40, 80, 160]
    costs = [3 * n**1.5 for n in sizes]
    found = put_together([exponent("x", sizes, costs, equals=1.5)])
    assert found.value == pytest.approx(1.5) and found.holds
    assert put_together([exponent("x", sizes, costs, equals=2)]).holds is False
    assert put_together([exponent("x", sizes, costs, most=2)]).holds
    assert put_together([exponent("x", sizes, costs, most=1)]).holds is False
    told = str(put_together([exponent("all pairs", sizes, costs, equals=1.5, unit="FLOPs", size="nodes")]))
    assert told == "all pairs: exponent of FLOPs in nodes = 1.5 (1.5 … 1.5), wanted 1.5 ± 0.1"
    noisy = [c * math.exp(0.1 * torch.randn(()).item()) for c in costs]
    fit = put_together([exponent("x", sizes, noisy, equals=1.5, within=1.0)])
    assert fit.interval[0] < fit.value < fit.interval[1]
    with pytest.raises(ValueError, match="five sizes"):
        exponent("x", sizes[:4], costs[:4], equals=1.5)
    with pytest.raises(ValueError, match="equals or most"):
        exponent("x", sizes, costs)


def test_curves_and_notes_are_shown_not_judged():
    line = put_together(
        [
            curve("a", "b", [1, 2], [3, 4], across="x", up="y"),
            curve("a", "b", [1, 2], [5, 4], across="x", up="y"),
        ]
    )
    assert line.data["rows"] == [(1.0, 4.0, 3.0, 5.0), (2.0, 4.0, 4.0, 4.0)] and line.holds is None
    assert str(put_together([note("n", 1.0), note("n", 3.0)])) == "n: 2 (1 … 3)"
    assert str(put_together([note("n", "word")])) == "n: word"


def of(role, holds):
    return Evidence("x", "bound", role, 0.0, "", holds)


@pytest.mark.parametrize(
    ("stated", "detail", "corrected", "verdict"),
    [
        (True, None, None, ("holds", None)),
        (True, True, True, ("holds", None)),
        (True, False, True, ("holds, corrected", "so")),
        (True, False, False, ("fails", None)),
        (True, False, None, ("fails", None)),
        (False, True, True, ("fails", "so")),
        (False, None, False, ("fails", None)),
        ("open", None, None, ("undecided", None)),
        (True, "open", True, ("undecided", None)),
        (True, False, "open", ("fails", None)),
    ],
)
def test_the_verdict_follows_from_the_evidence(stated, detail, corrected, verdict):
    given = [("stated", stated), ("detail", detail), ("corrected", corrected)]
    evidence = [of(role, None if held == "open" else held) for role, held in given if held is not None]
    assert judge(evidence, "so") == verdict


def test_no_evidence_no_verdict():
    assert judge([], "so") == ("undecided", None)
    assert judge([of("corrected", True)], "so") == ("undecided", None)


def test_evidence_survives_json():
    import json

    found = put_together([exponent("x", [1, 2, 4, 8, 16], [1, 2, 4, 8, 16], equals=1)])
    assert str(Evidence.from_dict(json.loads(json.dumps(found.to_dict())))) == str(found)


def test_a_trace_tells_products_from_sums():
    x, h, W, U = (torch.ones(2, 2, requires_grad=True) for _ in range(4))
    y = torch.tanh(torch.addmm(x @ W, h, U))
    z = y + x
    assert edges({"x": x, "h": h, "y": y, "z": z}, {"W": W, "U": U}) == {
        ("x", "y", "W"), ("h", "y", "U"), ("y", "z", ""), ("x", "z", ""),
    }  # fmt: skip
