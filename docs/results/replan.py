#!/usr/bin/env python
"""The problems raced on an H200, planned with the constants that ship.

    python docs/results/replan.py

2026-11-18-h200-races.json has what each strategy took, in microseconds: in float32 the 304 problems of
`heedful bench regret --device cuda`, and on another machine, after `fused` had become faster in training, 285
of them drawn at random; in bfloat16 those of `heedful calibrate` and the 114 drawn ones. Problems of elu and
means of the past were raced anew when feature maps got kernels; then a third machine raced 140 of the 304,
drawn at random, with the constants that shipped then. When tiles got a kernel, that alone was raced again, on
a machine of its own: its times (`tiled`, and `banded`, which runs the same) stand in all of them.

Printed is how often the choice is within 1.15× of the fastest, and how often of the fastest that the planner
does not pass over (`Strategy.gives_way`); the same with constants fitted to four fifths of the races and
judged by the rest; and in bfloat16, fitted to the calibration's problems and judged by the drawn ones.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from math import inf
from pathlib import Path

import torch

from heedful.attention import constants, plan
from heedful.attention.calibrate import Measurement, _least_squares, example
from heedful.attention.strategies import STRATEGIES
from heedful.bench.regret import admitted

RACES = Path(__file__).with_name("2026-11-18-h200-races.json")
MEMORY = 70e9  # bytes: half of an H200's
LEAST = {4: 1e-14, 2: 7.2e-16}  # seconds a FLOP takes at least, half of what it takes in a large product
ENOUGH = 8  # measurements that are worth a fit


def races(run: str) -> list[tuple]:
    """(set, problem, microseconds by strategy)"""
    found, dtype = [], run.split(",")[0]
    for row in json.loads(RACES.read_text(encoding="utf-8"))[run]:
        similarity, neighbors, position, sizes, *training = row["problem"].split()
        heads, length, dim = map(int, sizes.split("×"))
        sizes = {"heads": heads, "length": length, "dim": dim, "training": bool(training), "seed": 1}
        one = example(similarity, neighbors, position, **sizes, dtype=getattr(torch, dtype))
        found.append((row["set"], one.problem.replace(device="cuda", exact=True), row["times"]))
    return found


def shipped() -> constants.Constants:
    return constants.Constants("H200", True, constants._constants.__wrapped__("cuda", 1).seconds, MEMORY)


def refitted(races: list[tuple]) -> constants.Constants:
    known = shipped()
    for direction in ("forward", "backward"):
        measured: dict[str, list[Measurement]] = {}
        for _, problem, times in races:
            if problem.gradient != (direction == "backward"):
                continue
            for name, micros in times.items():
                way, taken = STRATEGIES[name], 1e-6 * micros
                flavor, cost = way.flavor(problem), way.cost(problem)
                if problem.gradient:
                    taken = max(taken - known.time(flavor, "forward", cost, problem.item), 0.1 * taken)
                    cost = way.backward_cost(problem)
                flavor += constants.HALF * (problem.item == 2)
                entry = Measurement(flavor, direction, cost, problem.item, taken)
                measured.setdefault(flavor, []).append(entry)
        for flavor, entries in measured.items():
            if len(entries) >= ENOUGH:
                terms, _ = _least_squares(entries, LEAST[entries[0].item])
                known.seconds[flavor] = {**known.seconds[flavor], direction: tuple(terms)}
    return known


def lasting(races: list[tuple]) -> list[tuple]:
    """What of the earlier races still holds: all but how long `fused` trained."""
    gone = [{"fused"} if problem.gradient else set() for _, problem, _ in races]
    return [
        (name, problem, {way: taken for way, taken in times.items() if way not in away})
        for (name, problem, times), away in zip(races, gone, strict=True)
    ]


def good(known: constants.Constants, races: list[tuple]) -> Counter:
    plan.constants = lambda device: known
    plan._make_plan.cache_clear()
    found = Counter(problems=len(races))
    for _, problem, times in races:
        taken = times.get(plan.make_plan(problem).strategy, inf)
        found["right"] += taken <= 1.15 * min(times.values())
        found["of its own"] += taken <= 1.15 * min(admitted(problem, times).values())
    return found


def said(found: Counter) -> str:
    right = f"{found['right']} of {found['problems']} within 1.15×"
    return f"{right}, {found['of its own']} without what is passed over"


if __name__ == "__main__":
    before = lasting(races("float32"))
    earlier = {"float32": [], "float32, again": before, "float32, a third time": before, "bfloat16": []}
    for run, besides in earlier.items():
        found = races(run)
        for name in dict.fromkeys(name for name, *_ in found):
            part = [race for race in found if race[0] == name]
            print(f"{run}, {name}: constants that ship: {said(good(shipped(), part))}")
        for seed in range(3):
            order = random.Random(seed).sample(found, len(found))
            right = Counter()
            for part in range(5):
                judged = [problem for _, problem, _ in order[part::5]]
                rest = [race for n, race in enumerate(order) if n % 5 != part]
                rest += [race for race in besides if race[1] not in judged]
                right += good(refitted(rest), order[part::5])
            print(f"{run}: fitted to four fifths, judged by the rest: {said(right)}")
    own = [race for race in found if race[0] == "calibration"]
    drawn = [race for race in found if race[0] == "drawn"]
    print(f"bfloat16: fitted to the calibration's, judged by the drawn: {said(good(refitted(own), drawn))}")
