"""What `calibrate` makes of measurements: the constants they came from, and nothing of mere noise."""

from __future__ import annotations

import random

import pytest

from heedful.attention import calibrate as module
from heedful.attention import constants
from heedful.attention.cost import Cost
from heedful.attention.strategies import STRATEGIES

TRUE = (2e-4, 3e-6, 5e-12, 4e-11)


def measured(pace):
    found = []
    for make in module.probes("cpu"):
        example = make()
        problem, way = example.problem, STRATEGIES["reference"]
        if problem.neighbors.graph or example.training or problem.queries > 400:
            continue
        cost = way.cost(problem)
        terms = (1.0, cost.launches, cost.flops, cost.bytes)
        found.append(
            ("reference", "forward", problem, pace() * sum(a * b for a, b in zip(TRUE, terms, strict=True)))
        )
    return found


def test_constants_are_found_again():
    found = module._fit("cpu", measured(lambda: 1.0))
    assert not found.unsure
    assert found.error["reference forward"] < 1e-3
    cost = STRATEGIES["reference"].cost(next(iter(module.probes("cpu")))().problem)
    predicted = sum(
        a * b
        for a, b in zip(
            found.seconds["reference"]["forward"], (1, cost.launches, cost.flops, cost.bytes), strict=True
        )
    )
    assert predicted == pytest.approx(
        sum(a * b for a, b in zip(TRUE, (1, cost.launches, cost.flops, cost.bytes), strict=True)), rel=0.01
    )


def test_noise_is_not_kept(seed):
    draw = random.Random(seed)
    found = module._fit("cpu", measured(lambda: 10 ** draw.uniform(-2, 2)))
    assert "reference forward" in found.unsure
    assert "forward" not in found.seconds.get("reference", {})


def test_what_was_not_measured_stays_as_shipped(monkeypatch, tmp_path):
    """…for this device: a GPU whose calibration left something out does not take the CPU's."""
    monkeypatch.setattr(constants, "calibration_file", lambda: tmp_path / "calibration.json")
    monkeypatch.setattr(constants, "device_name", lambda device: f"a {device}")
    shipped = constants._constants.__wrapped__("cuda", 1).seconds
    fast, half = [1e-9, 0, 0, 0], f"mean{constants.HALF}"
    assert half not in shipped
    constants.save_calibration("cuda", {"seconds": {"mean": {"forward": fast}, half: {"backward": fast}}})
    found = constants._constants.__wrapped__("cuda", 1)
    assert found.calibrated
    assert found.seconds["mean"] == {"forward": tuple(fast), "backward": shipped["mean"]["backward"]}
    assert found.seconds[half] == {"forward": tuple(fast), "backward": tuple(fast)}
    assert found.seconds["banded"] == shipped["banded"]
    assert shipped["banded"] != constants._constants.__wrapped__("cpu", 1).seconds["banded"]


def test_half_precision_has_constants_of_its_own():
    cost = Cost(flops=1e12, bytes=0, memory=0, launches=0)
    slow, fast = {"forward": (0, 0, 1e-12, 0)}, {"forward": (0, 0, 1e-13, 0)}
    known = constants.Constants(
        "", False, {"reference": slow, "fused": slow, f"fused{constants.HALF}": fast}, 0
    )
    taken = {
        (way, item): known.time(way, "forward", cost, item) for way in ("fused", "tiled") for item in (2, 4)
    }
    assert taken == pytest.approx({("fused", 2): 0.1, ("fused", 4): 1, ("tiled", 2): 1, ("tiled", 4): 1})
