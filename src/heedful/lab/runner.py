"""Run a study: every variant, every seed, by the quickest of three ways, keeping each result as it comes.

`loop` runs one trial after another here. `processes` runs as many at once as there are cores. `stacked`
trains all seeds of a variant together, where the study knows how (`run_many`). `auto` tries what there is on
the first trials, which count like any others, and goes on with the quickest.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from .desk import Desk, flush_all
from .result import Result
from .store import Busy, Run, Store
from .study import Study, find

BACKENDS = ("auto", "loop", "processes", "stacked")
WORTH_TIMING = 20.0  # seconds of work left, below which starting processes cannot pay off


def run(
    study: str | Study,
    *,
    seeds: int | Sequence[int] | None = None,
    profile: str = "full",
    settings: Mapping[str, Any] | None = None,
    store: Store | str | os.PathLike = "runs",
    backend: str = "auto",
    workers: int | None = None,
    device: str = "cpu",
    again: bool = False,
    progress: bool = False,
) -> Result:
    """Train every variant of a study for every seed, and say what came out.

    What is in the store already is not run again unless `again`; interrupted, the same call goes on where it
    stopped. `seeds` is how many (0, 1, …) or which. A failing trial is kept with its error, and the
    others go on.
    """
    study = find(study)
    if backend not in BACKENDS:
        raise ValueError(f"run(): backend is {backend!r}; it is one of {', '.join(BACKENDS)}.")
    chosen = _seeds(study, seeds, profile)
    variants = study.variants(profile, settings)
    if not variants:
        raise ValueError(f"{study.name}: no variant fits {dict(settings or {})}.")
    if backend == "stacked" and not hasattr(study.settings, "run_many"):
        raise ValueError(f"{study.name} cannot be trained stacked; use loop or processes.")
    store = store if isinstance(store, Store) else Store(store)
    keyed = [(study.key(variant), asdict(variant)) for variant in variants]
    asked = store.begin(study.name, profile, dict(settings or {}), chosen, keyed)
    work = _Work(study, asked, store, device, workers or os.cpu_count() or 1, again)
    with _progress(study, len(keyed) * len(chosen), progress) as tell:
        work.go(backend, tell)
    store.finish(asked)
    return Result(study, asked, store)


def _seeds(study: Study, given: int | Sequence[int] | None, profile: str) -> list[int]:
    if given is None:
        given = getattr(study.settings, "seeds", {}).get(profile, 3 if profile == "quick" else 10)
    if isinstance(given, int):
        if given < 1:
            raise ValueError(f"run(): seeds is {given}; it takes 1 or more, or a list of seeds.")
        return list(range(given))
    chosen = [int(seed) for seed in given]
    if not chosen or len(set(chosen)) != len(chosen):
        raise ValueError(f"run(): seeds is {chosen}; it takes different whole numbers, at least one.")
    return chosen


class _Work:
    """The trials still to do, and the ways of doing them."""

    def __init__(self, study: Study, asked: Run, store: Store, device: str, workers: int, again: bool):
        self.study, self.asked, self.store = study, asked, store
        self.device, self.workers, self.again = device, workers, again
        self.settings = {key: study.settings(**chosen) for key, chosen in asked.variants}
        done = {} if again else {(t.key, t.seed) for t in store.trials(asked) if t.status == "done"}
        self.todo = [
            (key, seed) for key, _ in asked.variants for seed in asked.seeds if (key, seed) not in done
        ]

    def go(self, backend: str, tell) -> None:
        tell(len(self.asked.variants) * len(self.asked.seeds) - len(self.todo), "")
        ways = {"loop": self._loop, "processes": self._processes, "stacked": self._stacked}
        while self.todo:
            before, start = len(self.todo), time.perf_counter()
            if backend == "auto":
                self._try_all(tell)
            else:
                ways[backend](self.todo, tell)
            busy = [pair for pair in self.todo if self._busy(pair)]
            self.todo = busy
            if busy and before == len(busy):
                time.sleep(min(5.0, 0.2 + time.perf_counter() - start))  # another process is at work on them

    def _busy(self, pair) -> bool:
        rows = [t for t in self.store.trials(self.asked) if (t.key, t.seed) == pair]
        return bool(rows) and rows[0].status == "running"

    def _try_all(self, tell) -> None:
        """Each way on a few trials, the rest by the quickest."""
        start = time.perf_counter()
        self._loop(self.todo[:1], tell)
        pace = {"loop": time.perf_counter() - start}
        rest = self.todo[1:]
        if hasattr(self.study.settings, "run_many") and len(rest) > 1:
            key = rest[0][0]
            group = [pair for pair in rest if pair[0] == key][: max(2, len(self.asked.seeds) // 2)]
            start = time.perf_counter()
            self._stacked(group, tell)
            pace["stacked"] = (time.perf_counter() - start) / len(group)
            rest = [pair for pair in rest if pair not in group]
        quickest = min(pace, key=pace.__getitem__)
        if self.workers > 1 and len(rest) > self.workers and pace[quickest] * len(rest) > WORTH_TIMING:
            with self._pool() as pool:
                group, rest = rest[: 2 * self.workers], rest[2 * self.workers :]
                start = time.perf_counter()
                self._processes(group, tell, pool)
                pace["processes"] = (time.perf_counter() - start) / len(group)
                if pace["processes"] < pace[quickest]:
                    self._processes(rest, tell, pool)
                    return
        {"loop": self._loop, "stacked": self._stacked}[quickest](rest, tell)

    def _loop(self, pairs, tell) -> None:
        for key, seed in pairs:
            try:
                trial = self.store.claim(self.asked, key, seed, backend="loop", again=self.again)
            except Busy:
                continue
            if trial.status == "running":
                perform(self.study, self.settings[key], trial, self.store, self.device)
            tell(1, self.study.label(self.settings[key]))

    def _stacked(self, pairs, tell) -> None:
        for key in dict.fromkeys(key for key, _ in pairs):
            trials = []
            for seed in [seed for other, seed in pairs if other == key]:
                try:
                    trial = self.store.claim(self.asked, key, seed, backend="stacked", again=self.again)
                except Busy:
                    continue
                trials += [trial] if trial.status == "running" else []
            if trials:
                perform_many(self.study, self.settings[key], trials, self.store, self.device)
            tell(sum(other == key for other, _ in pairs), self.study.label(self.settings[key]))

    def _processes(self, pairs, tell, pool: ProcessPoolExecutor | None = None) -> None:
        if pool is None:
            with self._pool() as pool:
                return self._processes(pairs, tell, pool)
        module = self.study.settings.__module__
        job = (module, self.study.name, self.asked.id, str(self.store.folder), self.device, self.again)
        waiting = {pool.submit(_in_worker, *job, key, seed): (key, seed) for key, seed in pairs}
        while waiting:
            finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                key, seed = waiting.pop(future)
                try:
                    future.result()
                except BrokenProcessPool as error:
                    label = self.study.label(self.settings[key])
                    raise RuntimeError(
                        f"{self.study.name}: a worker process died while it had {label}, "
                        f"seed {seed} (out of memory?). What is finished is kept; run the same command again."
                    ) from error
                tell(1, self.study.label(self.settings[key]))
        return None

    def _pool(self) -> ProcessPoolExecutor:
        threads = max(1, (os.cpu_count() or 1) // self.workers)
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(
            self.workers, context, initializer=torch.set_num_threads, initargs=(threads,)
        )


def perform(study: Study, settings: Any, trial, store: Store, device: str) -> None:
    """One trial, here and now; its error is kept, not raised."""
    desk = Desk(trial, store, device=device)
    try:
        torch.manual_seed(trial.seed)
        results = settings.run(trial.seed, desk)
        desk.flush()
        store.done(trial, _numbers(study, results))
    except Exception:
        desk.flush()
        store.failed(trial, traceback.format_exc())


def perform_many(study: Study, settings: Any, trials, store: Store, device: str) -> None:
    """All seeds of a variant together."""
    desks = [Desk(trial, store, device=device) for trial in trials]
    start = time.perf_counter()
    try:
        results = settings.run_many([trial.seed for trial in trials], desks)
        flush_all(desks)
        each = (time.perf_counter() - start) / len(trials)
        for trial, found in zip(trials, results, strict=True):
            store.done(trial, _numbers(study, found), seconds=each)
    except Exception:
        flush_all(desks)
        for trial in trials:
            store.failed(trial, traceback.format_exc())


def _numbers(study: Study, results) -> dict[str, float]:
    if not isinstance(results, Mapping):
        raise TypeError(f"{study.name}: run() must return numbers by name, got {type(results).__name__}.")
    missing = [name for name in study.metrics if name not in results]
    if missing:
        raise ValueError(f"{study.name}: run() returned no {', '.join(missing)}.")
    return {name: float(value) for name, value in results.items()}


def _in_worker(module, name, run, folder, device, again, key, seed) -> None:
    import importlib

    importlib.import_module(module)
    study = find(name)
    with Store(folder) as store:
        asked = store.run(run)
        try:
            trial = store.claim(asked, key, seed, backend="processes", again=again)
        except Busy:
            return
        if trial.status == "running":
            perform(study, study.settings(**dict(asked.variants)[key]), trial, store, device)


@contextmanager
def _progress(study: Study, total: int, wanted: bool) -> Iterator:
    """`tell(count, what)`; a bar with an estimate on a terminal, nothing elsewhere."""
    if not wanted:
        yield lambda count, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (
        TextColumn("{task.fields[study]}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        Remaining(),
        TextColumn("{task.fields[what]}", style="dim"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, speed_estimate_period=600) as bar:
        task = bar.add_task("", total=total, study=study.name, what="")
        yield lambda count, what: bar.update(task, advance=count, what=what)
