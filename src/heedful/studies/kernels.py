"""What attention costs here: every strategy and similarity against length, and what the planner takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..attention.calibrate import example
from ..attention.measure import peak_memory, seconds
from ..attention.plan import make_plan
from ..attention.strategies import STRATEGIES
from ..lab import study
from ..lab.figures import COLOURS, canvas

SLOW = 3.0  # seconds a call: a strategy that took longer is not asked about greater lengths
FIT_FROM = 1e-3  # seconds below which starting a call is most of it, and no exponent shows


@study(
    "kernels",
    "What does attention cost, and when is it linear?",
    source="EECS 182, 2023, homework 7, 5; University of Amsterdam, 2024, 2.1; CSC413, 2024, 1.3",
    cost={"quick": "20 s", "full": "5 min"},
)
@dataclass
class Kernels:
    """Forward passes of one head width over growing lengths, by every exact strategy that takes the problem.

    Exponents are fitted to the longer half of the lengths. `regret` is the planner's choice over the fastest
    one, at the length where it errs most. Times are this machine's, and so is the figure.
    """

    similarity: Literal["softmax", "polynomial", "elu", "additive", "uniform"] = "softmax"
    heads: int = 4
    dim: int = 16
    shortest: int = 256
    longest: int = 16384

    axes = ("similarity",)
    quick = {"shortest": 512, "longest": 4096, "axes": {"similarity": ["softmax", "polynomial"]}}
    seeds = {"quick": 1, "full": 1}
    metrics = {
        "pairs": "all pairs (reference): time grows like length to the",
        "planned": "the planner's choice: time grows like length to the",
        "memory": "the planner's choice: memory grows like length to the",
        "gain": "all pairs over planned, time at the longest length both ran",
        "regret": "planned over fastest, at worst",
    }

    def run(self, seed, lab):
        device = lab.device.type
        lengths = [2**n for n in range(int(math.log2(self.shortest)), int(math.log2(self.longest)) + 1)]
        times: dict[str, dict[int, float]] = {}
        memory: dict[int, float] = {}
        chosen: dict[int, str] = {}
        for length in lengths:
            here = example(
                self.similarity, "everyone", "none",
                heads=self.heads, length=length, dim=self.dim, training=False, device=device, seed=seed,
            )  # fmt: skip
            plan = make_plan(here.problem.replace(exact=True))
            chosen[length] = plan.strategy
            for candidate in plan.candidates:
                before = times.get(candidate.name, {})
                too_slow = before and max(before.values()) > SLOW
                if candidate.reason or too_slow:
                    continue
                hopeless = candidate.seconds > max(0.3, 50 * plan.chosen.seconds)
                if hopeless and candidate.name != "reference":
                    continue
                once = here.run(STRATEGIES[candidate.name])
                taken = seconds(once, least=0.05, device=device)
                times.setdefault(candidate.name, {})[length] = taken
                lab.log(length, **{f"{candidate.name}, s": taken})
                if candidate.name == plan.strategy:
                    memory[length] = max(1.0, peak_memory(once, device))
                    lab.log(length, **{"planned, s": taken, "planned, bytes": memory[length]})
        planned = {n: times[name][n] for n, name in chosen.items() if n in times.get(name, {})}
        fastest = {n: min(t[n] for t in times.values() if n in t) for n in planned}
        pairs = times.get("reference", {})
        both = max(set(pairs) & set(planned), default=None)
        return {
            "pairs": exponent(pairs),
            "planned": exponent(planned),
            "memory": exponent(memory),
            "gain": pairs[both] / planned[both] if both else math.nan,
            "regret": max((planned[n] / fastest[n] for n in planned), default=math.nan),
        }

    @staticmethod
    def verdict(result):
        said = []
        for key, chosen, _ in result.variants():
            pairs, planned = result.summary(key, "pairs"), result.summary(key, "planned")
            if pairs and planned:
                said.append(f"{chosen['similarity']} {pairs.mean:.1f} → {planned.mean:.1f}")
        return "exponents of time, all pairs → planned: " + ", ".join(said)

    @staticmethod
    def figure(result):
        """Time against length: a line a strategy, rings around what the planner takes."""
        variants = result.variants()
        figure, axes = canvas(3.9 * len(variants) + 1, 3.8, ncols=len(variants), squeeze=False, sharey=True)
        names: dict[str, str] = {}
        for axis, (key, chosen, _) in zip(axes[0], variants, strict=True):
            for trial in result.trials:
                if trial.key != key or trial.status != "done":
                    continue
                curves = result.store.curves(trial)
                for name, curve in curves.items():
                    if name.endswith(", s") and name != "planned, s":
                        colour = names.setdefault(name[:-3], COLOURS[len(names) % len(COLOURS)])
                        axis.plot(*zip(*curve, strict=True), ".-", color=colour)
                ring = {"markerfacecolor": "none", "color": "black", "markersize": 10}
                axis.plot(*zip(*curves["planned, s"], strict=True), "o", **ring)
            axis.set_title(chosen["similarity"], loc="left", fontsize=10)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xlabel("length")
        axes[0, 0].set_ylabel("seconds, forward")
        for name, colour in names.items():
            axes[0, -1].plot([], [], ".-", color=colour, label=name)
        axes[0, -1].plot([], [], "o", markerfacecolor="none", color="black", markersize=8, label="planned")
        axes[0, -1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        return figure


def exponent(points: dict[int, float]) -> float:
    """The slope of log time (or memory) against log length, over the longer half of what is no overhead."""
    shown = [(n, t) for n, t in sorted(points.items()) if t > FIT_FROM]
    shown = shown[len(shown) // 2 - 1 :] if len(shown) > 3 else shown
    if len(shown) < 2:
        return math.nan
    x, y = np.log2(np.array(shown, float)).T
    return float(np.polyfit(x, y, 1)[0])
