"""What attention costs here: every strategy and similarity against length, and what the planner takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from ..attention.calibrate import example
from ..attention.measure import peak_memory, seconds
from ..attention.plan import make_plan
from ..attention.strategies import STRATEGIES
from ..lab import Count, study
from ..lab.figures import COLOURS, quiet, sheet

SLOW = 3.0  # seconds a call: a strategy that took longer is not asked about greater lengths
MOST = {"cpu": 4 << 30, "cuda": 64 << 30}  # bytes a call may be expected to hold
LONGEST = {"cpu": 16384, "cuda": 131072}
OVERHEAD = 3.0  # times the shortest call's: below, starting a call is most of it, and no exponent shows
KERNELS = ("polynomial", "elu")
PROBLEMS = {  # neighbors, position, and the similarities asked about
    "everyone": ("everyone", "none", ("softmax", *KERNELS, "additive", "uniform")),
    "causal": ("causal", "none", ("softmax", *KERNELS)),
    "relative": ("everyone", "relative", ("softmax", "elu")),
    "window": ("window:64", "none", ("softmax", "polynomial")),
    "graph": ("graph:8", "none", ("softmax", "additive")),
}


@study(
    "kernels",
    "What does attention cost, and when is it linear?",
    source="EECS 182, 2023, homework 7, 5; University of Amsterdam, 2024, 2.1; CSC413, 2024, 1.3",
    cost={"quick": "20 s", "full": "10 min"},
)
@dataclass
class Kernels:
    """Forward passes of one head width over growing lengths, by every exact strategy that takes the problem.

    A window hears 64 on each side, a graph's node 8 others. Exponents of time and memory are fitted to the
    longer half of the lengths, leaving out those where starting the call is most of it. `regret` is the
    planner's choice over the fastest one, at the length where it errs most. Times are this machine's, and so
    is the figure.
    """

    problem: Literal["everyone", "causal", "relative", "window", "graph"] = "everyone"
    similarity: Literal["softmax", "polynomial", "elu", "additive", "uniform"] = "softmax"
    heads: Count = 4
    dim: Count = 16
    shortest: Count = 256
    longest: Count | None = None  # 16,384; on a GPU 131,072

    axes = ("problem", "similarity")
    quick = {
        "shortest": 512,
        "longest": 4096,
        "axes": {"problem": ["everyone"], "similarity": ["softmax", "polynomial"]},
    }
    seeds = {"quick": 1, "full": 1}
    metrics = {
        "pairs": "exponent of length in the time of all pairs (reference)",
        "planned": "exponent of length in the time of the planner's choice",
        "pairs, memory": "exponent of length in the memory of all pairs",
        "memory": "exponent of length in the memory of the planner's choice",
        "gain": "all pairs over planned, time at the longest length both ran",
        "regret": "planned over fastest, at worst",
    }

    @property
    def sensible(self) -> bool:
        return self.similarity in PROBLEMS[self.problem][2]

    def run(self, seed, lab):
        device = lab.device.type
        longest = self.longest or LONGEST[device]
        neighbors, position, _ = PROBLEMS[self.problem]
        times: dict[str, dict[int, float]] = {}
        memory: dict[str, dict[int, float]] = {}
        chosen: dict[int, str] = {}
        for length in (2**n for n in range(int(math.log2(self.shortest)), int(math.log2(longest)) + 1)):
            here = example(
                self.similarity, neighbors, position,
                heads=self.heads, length=length, dim=self.dim, training=False, device=device, seed=seed,
            )  # fmt: skip
            plan = make_plan(here.problem.replace(exact=True))
            for candidate in plan.candidates:
                name = candidate.name
                if candidate.reason or max(times.get(name, {}).values(), default=0.0) > SLOW:
                    continue
                hopeless = candidate.seconds > max(0.3, 50 * plan.chosen.seconds)
                if (hopeless and name != "reference") or candidate.forward.memory > MOST[device]:
                    continue
                once = here.run(STRATEGIES[name])
                try:
                    taken, held = seconds(once, least=0.05, device=device), peak_memory(once, device)
                except torch.OutOfMemoryError:
                    torch.cuda.empty_cache()
                    continue
                times.setdefault(name, {})[length] = taken
                memory.setdefault(name, {})[length] = max(1.0, held)
                lab.log(length, **{f"{name}, s": taken, f"{name}, bytes": held})
                if name == plan.strategy:
                    chosen[length] = name
                    lab.log(length, **{"planned, s": taken, "planned, bytes": held})
        planned = {n: times[name][n] for n, name in chosen.items()}
        fastest = {n: min(t[n] for t in times.values() if n in t) for n in planned}
        pairs = times.get("reference", {})
        both = max(set(pairs) & set(planned), default=None)
        return {
            "pairs": exponent(pairs),
            "planned": exponent(planned),
            "pairs, memory": exponent(memory.get("reference", {})),
            "memory": exponent({n: memory[name][n] for n, name in chosen.items()}),
            "gain": pairs[both] / planned[both] if both else math.nan,
            "regret": max((planned[n] / fastest[n] for n in planned), default=math.nan),
            **{f"{name}, time": exponent(found) for name, found in times.items()},
            **{f"{name}, memory": exponent(found) for name, found in memory.items()},
        }

    @staticmethod
    def remarks(result):
        """Each strategy's own exponents."""
        said = []
        for trial in result.trials:
            ways = [name.removesuffix(", time") for name in trial.results if name.endswith(", time")]
            shown = [
                f"{way} {_number(trial.results[f'{way}, time'])} ({_number(trial.results[f'{way}, memory'])})"
                for way in ways
            ]
            label = result.study.label(result.study.settings(**trial.settings))
            said.append(f"{label}, length's exponent in time (memory): {', '.join(shown)}")
        return said

    @staticmethod
    def verdict(result):
        said = []
        for key, _, label in result.variants():
            pairs, planned = result.summary(key, "pairs"), result.summary(key, "planned")
            if pairs and planned:
                said.append(f"{label} {pairs.mean:.1f} → {planned.mean:.1f}")
        return "exponents of time, all pairs → planned: " + ", ".join(said) if said else ""

    @staticmethod
    def figure(result):
        """Time and memory against length: a line a strategy, rings around what the planner takes."""
        variants = result.variants()
        across = min(len(variants), 5)
        down = -(-len(variants) // across)
        figure = sheet(2.9 * across + 1.3, 4.9 * down)
        grid = figure.subplots(2 * down, across, squeeze=False, sharex=True, sharey="row")
        names: dict[str, dict[str, str]] = {}
        for axis in grid.flat:
            quiet(axis)
            axis.set_visible(False)
        for place, (key, _, label) in enumerate(variants):
            row, column = divmod(place, across)
            time, memory = grid[2 * row, column], grid[2 * row + 1, column]
            for axis, unit in ((time, "s"), (memory, "bytes")):
                axis.set_visible(True)
                for trial in result.trials:
                    if trial.key == key and trial.status == "done":
                        _draw(axis, result.store.curves(trial), unit, names)
                axis.set(xscale="log", yscale="log")
                axis.set_xscale("log", base=2)
                if column == 0:
                    axis.set_ylabel("seconds, forward" if unit == "s" else "bytes at the peak")
            time.set_title(label, loc="left", fontsize=10)
            memory.set_xlabel("length")
            memory.tick_params(labelbottom=True)
        handles = [grid[0, 0].plot([], [], marker=".", **look)[0] for look in names.values()]
        ring = {"markerfacecolor": "none", "color": "black", "markersize": 8}
        handles += grid[0, 0].plot([], [], "o", **ring)
        figure.legend(handles, [*names, "planned"], frameon=False, fontsize=9, loc="outside right center")
        return figure


def _draw(axis, curves: dict, unit: str, names: dict[str, dict[str, str]]) -> None:
    for name, curve in curves.items():
        way, _, measured = name.rpartition(", ")
        if measured == unit and way != "planned":
            turn, place = divmod(len(names), len(COLOURS))  # there are more ways than colours
            look = names.setdefault(way, {"color": COLOURS[place], "linestyle": ("-", ":")[turn]})
            axis.plot(*zip(*curve, strict=True), marker=".", linewidth=1.2, **look)
    if f"planned, {unit}" in curves:
        ring = {"markerfacecolor": "none", "color": "black", "markersize": 9}
        axis.plot(*zip(*curves[f"planned, {unit}"], strict=True), "o", **ring)


def exponent(points: dict[int, float]) -> float:
    """The slope of log time (or memory) against log length, over the longer half, three lengths at least.

    Lengths whose call is mostly overhead are left out, as far as three others are left.
    """
    ordered = sorted(points.items())
    least = OVERHEAD * min(points.values(), default=0.0)
    grown = [(n, value) for n, value in ordered if value > least]
    shown = grown if len(grown) >= 3 else ordered
    shown = shown[-max(3, (len(shown) + 1) // 2) :]
    if len(shown) < 2:
        return math.nan
    x, y = np.log2(np.array(shown, float)).T
    return float(np.polyfit(x, y, 1)[0])


def _number(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.2f}"
