"""Models that studies kept, as a page offers them: by number of their trial, loaded once."""

from __future__ import annotations

import threading
from typing import Any

from ..lab import Kept, Store, studies
from ..lab.desk import MODEL
from ..models import load, notes

MOST = 2  # models in memory


class Models:
    """The models in a store; those that still train are among them."""

    def __init__(self, store: Store):
        self.store = store
        self._lock = threading.Lock()
        self._loaded: dict[tuple, Kept] = {}

    def offered(self, use: str) -> dict[str, str]:
        """Names of models for a use by number of trial, those of the newest runs first."""
        known, found = studies(), {}
        for run in self.store.runs():
            for trial in self.store.trials(run):
                path = trial.folder / MODEL
                if str(trial.id) in found or run.study not in known or not path.is_file():
                    continue
                if notes(path).get("use") == use:
                    study = known[run.study]
                    label = study.label(study.settings(**trial.settings))
                    unfinished = "" if trial.status == "done" else f", {trial.status}"
                    found[str(trial.id)] = f"{study.name}: {label}, seed {trial.seed}{unfinished}"
        return found

    def load(self, number: str, use: str) -> Kept:
        """The model of a trial, ready to use."""
        trial = next((trial for trial in self.store.trials() if str(trial.id) == number), None)
        path = trial.folder / MODEL if trial is not None else None
        if trial is None or path is None or not path.is_file() or notes(path).get("use") != use:
            raise ValueError(f"There is no model {number!r} for {use}; choose one of the list.")
        mark: tuple[Any, ...] = (path, path.stat().st_mtime_ns)  # a trial that still trains keeps better ones
        with self._lock:
            if mark not in self._loaded:
                while len(self._loaded) >= MOST:
                    del self._loaded[next(iter(self._loaded))]
                model = load(path)
                model.eval()
                self._loaded[mark] = Kept(model, notes(path), path, trial)
            return self._loaded[mark]
