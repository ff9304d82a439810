"""What `calibrate` makes of measurements: the constants they came from, and nothing of mere noise."""

from __future__ import annotations

import random

import pytest

from heedful.attention import calibrate as module
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
