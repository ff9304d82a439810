#!/usr/bin/env python
"""The problems raced on an H200, planned again with the constants that ship.

    python docs/results/replan.py

The races are the entry `regret` of 2026-11-18-h200.json: what each strategy took. They were run by
`heedful.bench.regret`, problem by problem in random order, until the time was over. Printed is how often the
choice is within 1.15× of the fastest, and how often it would be with constants fitted to four fifths of the
races and judged by the rest.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from heedful.attention import constants, plan
from heedful.attention.calibrate import Measurement, _least_squares, example
from heedful.attention.strategies import STRATEGIES

RACES = Path(__file__).with_name("2026-11-18-h200.json")
MEMORY = 70e9  # bytes: half of an H200's
LEAST, ENOUGH = 1.6e-14, 8  # seconds a FLOP takes at least; measurements that are worth a fit


def races() -> list[tuple]:
    """(problem, microseconds by strategy, whether it was training)"""
    rows = next(entry for entry in json.loads(RACES.read_text()) if entry["name"] == "regret")["rows"]
    found = []
    for row in rows:
        similarity, neighbors, position, sizes, *training = row["problem"].split()
        heads, length, dim = map(int, sizes.split("×"))
        sizes = {"heads": heads, "length": length, "dim": dim, "training": bool(training), "seed": 1}
        problem = example(similarity, neighbors, position, **sizes).problem.replace(device="cuda", exact=True)
        # FlexAttention was raced before wide heads were padded.
        times = {name: t for name, t in row["times"].items() if name != "flex" or dim <= 64}
        found.append((problem, times, bool(training)))
    return found


def shipped() -> constants.Constants:
    return constants.Constants("H200", True, constants._constants.__wrapped__("cuda", 1).seconds, MEMORY)


def refitted(known: constants.Constants, races: list[tuple]) -> constants.Constants:
    for direction in ("forward", "backward"):
        measured: dict[str, list[Measurement]] = {}
        for problem, times, training in races:
            if training != (direction == "backward"):
                continue
            for name, micros in times.items():
                way, taken = STRATEGIES[name], 1e-6 * micros
                flavor, cost = way.flavor(problem), way.cost(problem)
                if training:
                    taken = max(taken - known.time(flavor, "forward", cost, problem.item), 0.1 * taken)
                    cost = way.backward_cost(problem)
                entry = Measurement(flavor, direction, cost, problem.item, taken)
                measured.setdefault(flavor, []).append(entry)
        for flavor, entries in measured.items():
            if len(entries) >= ENOUGH:
                terms, _ = _least_squares(entries, LEAST)
                known.seconds[flavor] = {**known.seconds[flavor], direction: tuple(terms)}
    return known


def good(known: constants.Constants, races: list[tuple]) -> int:
    plan.constants = lambda device: known
    plan._make_plan.cache_clear()
    chosen = [(plan.make_plan(problem).strategy, times) for problem, times, _ in races]
    return sum(name in times and times[name] <= 1.15 * min(times.values()) for name, times in chosen)


if __name__ == "__main__":
    found = races()
    print(f"constants that ship: {good(shipped(), found)} of {len(found)} within 1.15×")
    for seed in range(3):
        order = random.Random(seed).sample(found, len(found))
        right = sum(
            good(refitted(shipped(), [r for n, r in enumerate(order) if n % 5 != part]), order[part::5])
            for part in range(5)
        )
        print(f"fitted to four fifths, judged by the rest: {right} of {len(found)}")
