"""A run as it stands: state, time left, the table so far, and curves with a band over seeds."""

from __future__ import annotations

import asyncio
import json
import math
import statistics
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..lab import Result, Run, Store, Trial
from .jobs import Jobs

POINTS = 160  # of a curve: a page has no more pixels to spare
REMEMBERED = 300_000  # points kept of finished trials
LINES = 12  # of a picture: more cannot be told apart
GRACE = 20.0  # seconds that a run begun in a terminal may take to its first trial
FRESH = 0.7  # seconds for which one reading serves every page

Curves = dict[str, list[tuple[int, float]]]


class Moment(Result):
    """A result whose trials are read once, so that all a page shows is of one moment."""

    def __init__(self, study, run: Run, store: Store):
        super().__init__(study, run, store)
        self._trials = store.trials(run)

    @property
    def trials(self) -> list[Trial]:
        return self._trials

    @property
    def total(self) -> int:
        return len(self.run.variants) * len(self.run.seeds)

    def count(self, status: str) -> int:
        return sum(trial.status == status for trial in self.trials)


def state(moment: Moment, jobs: Jobs) -> str:
    """running, done, failed (some trial did) or interrupted."""
    over = moment.count("done") + moment.count("failed") == moment.total
    if moment.count("running") or (not over and jobs.alive(moment.run)):
        return "running"
    if over:
        return "failed" if moment.failures else "done"
    fresh = time.time() - moment.run.started < GRACE and jobs.of(moment.run) is None
    return "running" if fresh and moment.run.finished is None else "interrupted"


def left(moment: Moment) -> float | None:
    """About how many seconds are left, by what finished trials took; None before the first."""
    took = [trial.seconds for trial in moment.trials if trial.status == "done" and trial.seconds is not None]
    if not took:
        return None
    waiting = moment.total - moment.count("done") - moment.count("failed")
    return statistics.fmean(took) * waiting / max(1, moment.count("running"))


class Live:
    """Snapshots of runs, each read once for however many pages look at it."""

    def __init__(self, store: Store, jobs: Jobs):
        self.store, self.jobs = store, jobs
        self._lock = threading.Lock()
        self._looker = ThreadPoolExecutor(1, "live")  # however many pages wait, one thread looks
        self._snapshots: dict[str, tuple[float, dict[str, Any], str]] = {}
        self._finished: dict[tuple, Curves] = {}  # curves of finished trials do not change
        self._kept = 0  # points of them

    def snapshot(self, run: Run) -> dict[str, Any]:
        return self._snapshot(run)[0]

    async def latest(self, run: Run) -> tuple[str, str]:
        """State and snapshot, as JSON that all pages share."""
        read, found, text = self._snapshots.get(run.id, (-math.inf, {}, ""))
        if time.monotonic() - read > FRESH:
            loop = asyncio.get_running_loop()
            found, text = await loop.run_in_executor(self._looker, self._snapshot, run)
        return found["state"], text

    def _snapshot(self, run: Run) -> tuple[dict[str, Any], str]:
        with self._lock:
            read, found, text = self._snapshots.get(run.id, (-math.inf, {}, ""))
            if time.monotonic() - read > FRESH:
                found = self._look(run)
                text = json.dumps(found, allow_nan=False)
                if len(self._snapshots) > 64:
                    self._snapshots.clear()
                self._snapshots[run.id] = (time.monotonic(), found, text)
            return found, text

    def _look(self, run: Run) -> dict[str, Any]:
        moment = Moment(run.study, run, self.store)
        now = state(moment, self.jobs)
        return {
            "state": now,
            "done": moment.count("done"),
            "failed": moment.count("failed"),
            "running": moment.count("running"),
            "total": moment.total,
            "left": left(moment) if now == "running" else None,
            "rows": [{name: _shown(cell) for name, cell in row.items()} for row in moment.rows()],
            "failures": [line for line in moment.notes() if line.startswith("failed")],
            "pictures": self._pictures(moment),
        }

    def _pictures(self, moment: Moment) -> list[dict[str, Any]]:
        """One a metric that was logged: a line a variant, mean ± standard deviation over its seeds."""
        reached = self.store.reached(moment.trials)
        # Powers of two change seldom as a curve grows, so that what was read of finished trials serves again.
        widths = {
            name: 1 << max(0, math.ceil(math.log2((last + 1) / POINTS))) for name, last in reached.items()
        }
        by_variant: dict[str, list[Curves]] = {}
        for trial in moment.trials:
            by_variant.setdefault(trial.key, []).append(self._curves(trial, widths))
        labels = {key: label for key, _, label in moment.variants()}
        found = []
        # What was trained on first, then what was logged longest.
        for name in sorted(reached, key=lambda name: (name != "loss", -reached[name], name)):
            lines: list[dict[str, Any]] = []
            for key, group in by_variant.items():
                seeds = [curves[name] for curves in group if name in curves]
                if seeds and len(lines) < LINES:
                    lines.append({"label": labels[key], "seeds": len(seeds), "points": band(seeds)})
            drawn = sum(any(name in curves for curves in group) for group in by_variant.values())
            found.append({"name": name, "lines": lines, "hidden": drawn - len(lines)})
        return found

    def _curves(self, trial: Trial, widths: dict[str, int]) -> Curves:
        mark = (trial.id, str(trial.folder), trial.seconds, tuple(widths.items()))
        if mark in self._finished:
            return self._finished[mark]
        found = self.store.sketch(trial, widths)
        if trial.status == "done":
            size = sum(map(len, found.values()))
            if self._kept + size > REMEMBERED:
                self._finished.clear()
                self._kept = 0
            self._finished[mark] = found
            self._kept += size
        return found


def thinned(points: Sequence) -> list:
    """At most POINTS of a curve, the first and the last among them."""
    if len(points) <= POINTS:
        return list(points)
    every = math.ceil(len(points) / (POINTS - 1))
    return [*points[::every], *([points[-1]] if (len(points) - 1) % every else [])]


def band(seeds: Iterable[Sequence[tuple[int, float]]]) -> list[list[float]]:
    """[step, mean, low, high] at POINTS steps at most, over the seeds that reached each: mean ± deviation.

    >>> band([[(0, 1.0), (1, 3.0)], [(0, 3.0)]])
    [[0, 2.0, 0.58..., 3.41...], [1, 3.0, 3.0, 3.0]]
    """
    at: dict[int, list[float]] = {}
    for curve in seeds:
        for step, value in curve:
            if math.isfinite(value):
                at.setdefault(step, []).append(value)
    return [[step, *_spread(at[step])] for step in thinned(sorted(at))]


def _spread(values: list[float]) -> tuple[float, float, float]:
    """mean, mean − std, mean + std (divided by n − 1); no spread where it is beyond what floats hold."""
    mean = sum(values) / len(values)
    square = sum((value - mean) * (value - mean) for value in values) / max(1, len(values) - 1)
    spread = math.sqrt(square) if math.isfinite(square) else 0.0
    return mean, mean - spread, mean + spread


def _shown(cell: Any) -> str:
    return "–" if cell is None else str(cell)
