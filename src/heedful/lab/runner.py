"""Run a study: every variant, every seed, by the quickest of three ways, keeping each result as it comes.

`loop` runs one trial after another here. `processes` runs as many at once as there are cores. `stacked`
trains all seeds of a variant together, where its seeds are one experiment (`Trained`). `auto` runs a trial of
each variant, times a few steps of every way where much is left, and goes on with the quickest.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from ..phrases import suggestion
from ..training.choice import choose
from .cluster import on_cluster
from .desk import Desk, flush_all
from .result import Result
from .store import Busy, Run, Store
from .study import Study, find
from .trained import Trained
from .workers import pool

ENGINES = ("here", "ray")
BACKENDS = ("auto", "loop", "processes", "stacked")
WORTH_CHOOSING = 8.0  # seconds of work left, below which timing what is quickest cannot pay off
WORTH_PROCESSES = 20.0  # nor starting processes


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
    engine: str = "here",
    again: bool = False,
    progress: bool = False,
) -> Result:
    """Train every variant of a study for every seed, and say what came out.

    What is in the store already is not run again unless `again`; interrupted, the same call goes on where it
    stopped. `seeds` is how many (0, 1, …) or which. A failing trial is kept with its error, and the
    others go on. `engine="ray"` spreads trials over a Ray cluster (RAY_ADDRESS, or one of this machine).
    """
    study = find(study)
    for name, value, known in (("backend", backend, BACKENDS), ("engine", engine, ENGINES)):
        if value not in known:
            near = suggestion(value, known) or "."
            raise ValueError(f"run(): {name} is {value!r}; it is one of {', '.join(known)}{near}")
    if workers is not None and workers < 1:
        raise ValueError(f"run(): workers is {workers}; it takes 1 or more.")
    if engine == "here":
        _check_device(device)
    chosen = _seeds(study, seeds, profile)
    variants = study.variants(profile, settings)
    if not variants:
        raise ValueError(f"{study.name}: no variant fits {dict(settings or {})}.")
    if backend == "stacked" and not all(map(_stackable, variants)):
        raise ValueError(f"{study.name} cannot be trained stacked; use loop or processes.")
    store = store if isinstance(store, Store) else Store(store)
    keyed = [(study.key(variant), asdict(variant)) for variant in variants]
    asked = store.begin(study.name, profile, dict(settings or {}), chosen, keyed)
    work = _Work(study, asked, store, device, workers or os.cpu_count() or 1, again)
    with _progress(study, len(keyed) * len(chosen), progress) as tell:
        work.go(engine if engine != "here" else backend, tell)
    store.finish(asked)
    return Result(study, asked, store)


def _check_device(device: str) -> None:
    """Said once and before anything is begun; every trial would find out for itself."""
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ValueError(f"run(): device is {device!r}; it is cpu or cuda (cuda:1 for the second one).")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"run(): device is {device!r}; torch {torch.__version__} sees {torch.cuda.device_count()} CUDA "
            f"devices here. Use cpu."
        )


def _seeds(study: Study, given: int | Sequence[int] | None, profile: str) -> list[int]:
    if given is None:
        given = study.seeds(profile)
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
        with pool(self.workers, max(1, (os.cpu_count() or 1) // self.workers)) as workers:
            ways: dict[str, Callable] = {
                "auto": partial(self._auto, workers),
                "processes": partial(self._processes, workers),
                "loop": self._loop,
                "stacked": self._stacked,
                "ray": self._ray,
            }
            while self.todo:
                before, start = len(self.todo), time.perf_counter()
                ways[backend](self.todo, tell)
                self.todo = [pair for pair in self.todo if self._busy(pair)]
                if self.todo and before == len(self.todo):
                    # another process is at work on them
                    time.sleep(min(5.0, 0.2 + time.perf_counter() - start))

    def _busy(self, pair) -> bool:
        rows = [t for t in self.store.trials(self.asked) if (t.key, t.seed) == pair]
        return bool(rows) and rows[0].status == "running"

    def _auto(self, workers, pairs, tell) -> None:
        """A trial of each variant in this process, the rest by what is quickest for it."""
        later: list[tuple[str, list[int]]] = []
        for key in dict.fromkeys(key for key, _ in pairs):
            settings = self.settings[key]
            first, *rest = [seed for other, seed in pairs if other == key]
            start = time.perf_counter()
            self._loop([(key, first)], tell)
            left = (time.perf_counter() - start) * len(rest)
            if left > WORTH_CHOOSING and isinstance(settings, Trained) and settings.alike:
                experiment = settings.experiment(torch.device(self.device), first)
                choice = choose(experiment, rest, self.workers, sent=False)
                if choice.backend == "stacked":
                    self._stacked([(key, seed) for seed in rest], tell)
                    continue
                if choice.backend == "processes":
                    later += [(key, rest[at : at + choice.width]) for at in range(0, len(rest), choice.width)]
                    continue
            elif left > WORTH_PROCESSES and self.workers > 1 and self.device == "cpu":
                later += [(key, [seed]) for seed in rest]
                continue
            self._loop([(key, seed) for seed in rest], tell)
        if later:
            self._in_pool(workers, later, tell)

    def _loop(self, pairs, tell) -> None:
        for key, seed in pairs:
            self._here(key, [seed], "loop")
            tell(1, self.study.label(self.settings[key]))

    def _stacked(self, pairs, tell) -> None:
        for key in dict.fromkeys(key for key, _ in pairs):
            seeds = [seed for other, seed in pairs if other == key]
            self._here(key, seeds, "stacked")
            tell(len(seeds), self.study.label(self.settings[key]))

    def _here(self, key: str, seeds: list[int], backend: str) -> None:
        perform(
            self.study,
            self.settings[key],
            self.asked,
            key,
            seeds,
            self.store,
            self.device,
            backend,
            self.again,
        )

    def _processes(self, workers, pairs, tell) -> None:
        self._in_pool(workers, [(key, [seed]) for key, seed in pairs], tell)

    def _in_pool(self, workers, groups, tell) -> None:
        module = self.study.settings.__module__
        job = (module, self.study.name, self.asked.id, str(self.store.folder), self.device, self.again)
        waiting = {workers.submit(_in_worker, *job, key, seeds): (key, seeds) for key, seeds in groups}
        while waiting:
            finished, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                key, seeds = waiting.pop(future)
                label = self.study.label(self.settings[key])
                try:
                    future.result()
                except BrokenProcessPool as error:
                    raise RuntimeError(
                        f"{self.study.name}: a worker process died while it had {label}, seed "
                        f"{', '.join(map(str, seeds))} (out of memory?). What is finished is kept; run the "
                        f"same command again."
                    ) from error
                tell(len(seeds), label)

    def _ray(self, pairs, tell) -> None:
        on_cluster(self.study, self.asked, pairs, self.store, device=self.device, again=self.again, tell=tell)


def _stackable(settings: Any) -> bool:
    return hasattr(settings, "run_many") and getattr(settings, "alike", True)


def perform(
    study: Study, settings: Any, asked: Run, key: str, seeds: list[int], store: Store, device: str,
    backend: str, again: bool,
) -> None:  # fmt: skip
    """Trials of one variant, here and now, stacked if several; their error is kept, not raised."""
    trials = []
    for seed in seeds:
        try:
            trial = store.claim(asked, key, seed, backend=backend, again=again)
        except Busy:
            continue
        trials += [trial] if trial.status == "running" else []
    if not trials:
        return
    desks = {trial.seed: Desk(trial, store, device=device) for trial in trials}
    waiting = {trial.seed: trial for trial in trials}
    start = time.perf_counter()

    def done(seed: int, found: Any, seconds: float) -> None:
        desks[seed].flush()
        store.done(waiting[seed], _numbers(study, found), seconds=seconds)
        del waiting[seed]

    try:
        if len(trials) == 1:
            (seed,) = waiting
            torch.manual_seed(seed)
            done(seed, settings.run(seed, desks[seed]), time.perf_counter() - start)
        elif isinstance(settings, Trained):  # what has stopped is kept, whatever becomes of the others
            settings.run_many(list(desks), list(desks.values()), done)
        else:
            results = settings.run_many(list(desks), list(desks.values()))
            each = (time.perf_counter() - start) / len(trials)
            for seed, found in zip(desks, results, strict=True):
                done(seed, found, each)
    except Exception:
        flush_all(list(desks.values()))
        for trial in waiting.values():
            store.failed(trial, traceback.format_exc())


def _numbers(study: Study, results) -> dict[str, float]:
    if not isinstance(results, Mapping):
        raise TypeError(f"{study.name}: run() must return numbers by name, got {type(results).__name__}.")
    missing = [name for name in study.metrics if name not in results]
    if missing:
        raise ValueError(f"{study.name}: run() returned no {', '.join(missing)}.")
    return {name: float(value) for name, value in results.items()}


def _in_worker(module, name, run, folder, device, again, key, seeds) -> None:
    import importlib

    importlib.import_module(module)
    study = find(name)
    with Store(folder) as store:
        asked = store.run(run)
        settings = study.settings(**dict(asked.variants)[key])
        perform(study, settings, asked, key, seeds, store, device, "processes", again)


@contextmanager
def _progress(study: Study, total: int, wanted: bool) -> Iterator:
    """`tell(count, what)`; a bar with an estimate on a terminal, nothing elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not wanted or not (console.is_terminal or console.is_jupyter):
        yield lambda count, what: None
        return
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
    with Progress(*columns, console=console, transient=True, speed_estimate_period=600) as bar:
        task = bar.add_task("", total=total, study=study.name, what="")
        yield lambda count, what: bar.update(task, advance=count, what=what)
