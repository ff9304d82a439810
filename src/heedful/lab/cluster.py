"""Trials spread over a Ray cluster: its machines train, this process keeps what came of it.

A worker writes to a store of its own, in a temporary folder, and sends back what is in it: the machines need
share no disk, and one database is written by one machine.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .store import Busy, Run, Store, Trial
from .study import Study, find


@dataclass
class Parcel:
    """What comes back of a trial: its numbers or its error, its curves and its files."""

    results: dict[str, float]
    error: str | None
    seconds: float
    curves: dict[str, list[tuple[int, float]]]
    files: dict[str, bytes]

    def unpack(self, trial: Trial, store: Store) -> None:
        store.log_many([(trial.id, name, *point) for name, curve in self.curves.items() for point in curve])
        for name, content in self.files.items():
            path = trial.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if self.error is None:
            store.done(trial, self.results, seconds=self.seconds)
        else:
            store.failed(trial, self.error)


def on_cluster(
    study: Study,
    asked: Run,
    pairs: Sequence[tuple[str, int]],
    store: Store,
    *,
    device: str,
    again: bool,
    tell: Callable,
) -> None:
    """Every trial as a task of one core, and one GPU where that is asked for."""
    try:
        import ray
    except ImportError:
        raise ImportError("--engine ray needs Ray: pip install 'heedful[ray]'.") from None
    if not ray.is_initialized():
        # RAY_ADDRESS says which cluster; without it, one that runs here, or one of our own.
        ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
    train = ray.remote(num_cpus=1, num_gpus=1 if device.startswith("cuda") else 0)(trained_away)
    settings, waiting = dict(asked.variants), {}
    for key, seed in pairs:
        try:
            trial = store.claim(asked, key, seed, backend="ray", again=again)
        except Busy:
            continue
        if trial.status == "running":
            task = train.remote(study.settings.__module__, study.name, settings[key], seed, device)
            waiting[task] = trial, study.label(study.settings(**settings[key]))
    while waiting:
        for task in ray.wait(list(waiting))[0]:
            trial, label = waiting.pop(task)
            try:
                ray.get(task).unpack(trial, store)
            except ray.exceptions.RayError as error:
                store.failed(trial, f"The cluster lost it: {error}")
            tell(1, label)


def trained_away(module: str, name: str, settings: dict[str, Any], seed: int, device: str) -> Parcel:
    """On a worker: one trial in a store of its own."""
    from .runner import perform

    importlib.import_module(module)
    torch.set_num_threads(1)
    study = find(name)
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        chosen = study.settings(**settings)
        key = study.key(chosen)
        asked = store.begin(name, "full", settings, [seed], [(key, settings)])
        perform(study, chosen, asked, key, [seed], store, device, "ray", False)
        (trial,) = store.trials(asked)
        files = {}
        for path in Path(trial.folder).rglob("*"):
            if path.is_file():
                files[os.fspath(path.relative_to(trial.folder))] = path.read_bytes()
        return Parcel(trial.results, trial.error, trial.seconds or 0.0, store.curves(trial), files)
