"""Which way to train many seeds: a short timing of each, and what it says of the whole."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

import torch
from torch import nn

from .experiment import Experiment
from .stack import Unstackable
from .stacked import run_stacked
from .workers import Unsendable, defined_in_script, packed

TRIAL = 1.0  # seconds a trial may take, but for its first steps
STARTUP = 6.0  # seconds until a spawned worker has loaded torch and begins
CROWDED = 1.3  # how much longer a step takes when the other cores are at work, too: they share memory
WIDTH = 32  # seeds in a stack: caches overflow beyond
MOST = 1 << 26  # parameters in a stack: a gigabyte with gradients and two moments


@dataclass
class Choice:
    """The backend that was chosen, what each would take, and why some cannot."""

    backend: str
    width: int = 1  # seeds at a time
    seconds: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        lines = [
            f"{'→' if name == self._name else ' '} {name:<18} {seconds:8.1f} s"
            for name, seconds in sorted(self.seconds.items(), key=lambda pair: pair[1])
        ]
        return "\n".join(lines + [f"  {name:<18} {reason}" for name, reason in self.reasons.items()])

    @property
    def _name(self) -> str:
        return "processes, stacked" if self.backend == "processes" and self.width > 1 else self.backend


def choose(experiment: Experiment, seeds: list[int], workers: int, *, sent: bool = True) -> Choice:
    """Time a few steps one seed at a time and stacked, with all cores and with one worker's, and
    extrapolate. Unless `sent`, workers make the experiment themselves.
    """
    choice = Choice("loop")
    if len(seeds) == 1:
        choice.reasons["stacked"] = choice.reasons["processes"] = "there is one seed"
        return choice
    steps = _steps(experiment, seeds[0])
    alone = _alone(experiment, seeds[0])
    choice.seconds["loop"] = alone * steps * len(seeds)
    model = experiment.build(seeds[0])
    width = min(width_for(model), len(seeds))
    try:
        together = _together(experiment, seeds[:width])
        choice.seconds["stacked"] = together / width * steps * len(seeds)
    except Unstackable as error:
        choice.reasons["stacked"] = str(error)
    except torch.OutOfMemoryError:
        choice.reasons["stacked"] = f"{width} seeds at once do not fit the memory"
    reason = _unsuited(experiment, model, workers, min(choice.seconds.values()), sent)
    if reason:
        choice.reasons["processes"] = reason
    else:
        with _threads(max(1, torch.get_num_threads() // workers)):
            rounds = CROWDED * math.ceil(len(seeds) / workers)
            choice.seconds["processes"] = STARTUP + _alone(experiment, seeds[0]) * steps * rounds
            if "stacked" in choice.seconds:
                part = min(width, math.ceil(len(seeds) / workers))
                if part > 1:
                    each = _together(experiment, seeds[:part]) / part
                    choice.seconds["processes, stacked"] = STARTUP + each * steps * rounds
    best = min(choice.seconds, key=choice.seconds.__getitem__)
    choice.backend = best.partition(",")[0]
    if best == "stacked":
        choice.width = width
    elif best == "processes, stacked":
        choice.width = min(width, math.ceil(len(seeds) / workers))
    return choice


def width_for(model: nn.Module) -> int:
    """How many to stack: not so many that their parameters fill the memory."""
    return max(1, min(WIDTH, MOST // max(1, sum(parameter.numel() for parameter in model.parameters()))))


def _unsuited(experiment: Experiment, model: nn.Module, workers: int, otherwise: float, sent: bool) -> str:
    """Why processes are not worth a timing, or ""."""
    if workers < 2:
        return "there is one core to use"
    if otherwise < 2 * STARTUP:
        return f"starting them takes as long as the whole ({otherwise:.1f} s)"
    if sent:
        try:
            content = packed(experiment)
        except Unsendable as error:
            return str(error)
        if defined_in_script(content):
            return (
                "the experiment is defined in the main script; put it in a module, or ask for processes by "
                "name"
            )
    if next(model.parameters()).device.type != "cpu":
        return "they would share one accelerator"
    return ""


def _steps(experiment: Experiment, seed: int) -> float:
    if experiment.steps is not None:
        return experiment.steps
    data = experiment.data(seed)
    batches = len(data) if hasattr(data, "__len__") else 100  # type: ignore[arg-type]
    return experiment.epochs * math.ceil(batches / experiment.accumulate)  # type: ignore[operator]


def _alone(experiment: Experiment, seed: int) -> float:
    return _timed(lambda tick: replace(experiment, test=None).run(seed, watch=tick))


def _together(experiment: Experiment, seeds: list[int]) -> float:
    # Its first eleven steps find out how many threads are best.
    return _timed(lambda tick: run_stacked(replace(experiment, test=None), seeds, watch=tick), 18)


class _Enough(Exception):
    pass


def _timed(run: Callable[[Callable[[], None]], object], steps: int = 8) -> float:
    """Seconds a step, the first ones not counted: they compile, plan and fill caches."""
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(time.perf_counter())
        if len(ticks) >= steps or (len(ticks) >= 4 and ticks[-1] - ticks[1] > TRIAL):
            raise _Enough

    began = time.perf_counter()
    with suppress(_Enough):
        run(tick)
    if len(ticks) < 3:
        return (ticks[-1] - began) / len(ticks)
    gaps = [after - before for before, after in pairwise(ticks[1:])]
    return median(gaps[-6:])


@contextmanager
def _threads(count: int):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
