"""Models that studies kept, as a page offers them: by number of their trial, loaded once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..lab import Kept, Store, studies
from ..lab.desk import MODEL
from ..lab.store import Run, Trial
from ..models import load, notes
from ..models.model import class_of
from .looking.view import KINDS

MOST = 2  # models in memory


class Models:
    """The models in a store; those that still train are among them."""

    def __init__(self, store: Store):
        self.store = store
        self._lock = threading.Lock()
        self._loaded: dict[tuple, Kept] = {}

    def offered(self, use: str) -> dict[str, str]:
        """Names of models for a use by number of trial, those of the newest runs first."""
        return {
            str(trial.id): self._name(trial) for trial, path in self._every() if notes(path).get("use") == use
        }

    def watchable(self) -> dict[str, dict[str, tuple[str, str]]]:
        """Models that have attention to look at, by kind of input and number of trial: name, and data set."""
        found: dict[str, dict[str, tuple[str, str]]] = {kind: {} for kind in KINDS.values()}
        for trial, path in self._every():
            kind, known = KINDS.get(class_of(path)), notes(path)
            if kind is not None and known.get("use"):
                found[kind][str(trial.id)] = (self._name(trial), str(known.get("dataset", "")))
        return found

    def uses(self, run: Run) -> dict[str, str]:
        """Pages where the first model that a run kept can be used, by address."""
        for trial in self.store.trials(run):
            path = trial.folder / MODEL
            if path.is_file():
                looking = {f"/attention?who={trial.id}": "who listens to whom in it"}
                writing = {f"/generate?model={trial.id}": "text from it"}
                return {
                    **(looking if class_of(path) in KINDS else {}),
                    **(writing if notes(path).get("use") == "text" else {}),
                }
        return {}

    def load(self, number: str, use: str) -> Kept:
        """The model of a trial, ready to use."""
        found = self._find(number)
        if found is None or notes(found[1]).get("use") != use:
            raise ValueError(f"There is no model {number!r} for {use}; choose one of the list.")
        return self._load(*found)

    def watched(self, number: str) -> tuple[Kept, str]:
        """A model that has attention to look at, and what it listens to."""
        found = self._find(number)
        kind = None if found is None else KINDS.get(class_of(found[1]))
        if found is None or kind is None:
            raise ValueError(f"There is no model {number!r} that attends; choose one of the list.")
        return self._load(*found), kind

    def _every(self) -> Iterator[tuple[Trial, Path]]:
        """Trials with a model, each once."""
        known, seen = studies(), set()
        for run in self.store.runs():
            for trial in self.store.trials(run):
                path = trial.folder / MODEL
                if trial.id not in seen and run.study in known and path.is_file():
                    seen.add(trial.id)
                    yield trial, path

    def _name(self, trial: Trial) -> str:
        study = studies()[trial.study]
        label = study.label(study.settings(**trial.settings))
        unfinished = "" if trial.status == "done" else f", {trial.status}"
        return f"{study.name}: {label}, seed {trial.seed}{unfinished}"

    def _find(self, number: str) -> tuple[Trial, Path] | None:
        for trial in self.store.trials():
            if str(trial.id) == number and (trial.folder / MODEL).is_file():
                return trial, trial.folder / MODEL
        return None

    def _load(self, trial: Trial, path: Path) -> Kept:
        mark: tuple[Any, ...] = (path, path.stat().st_mtime_ns)  # a trial that still trains keeps better ones
        with self._lock:
            if mark not in self._loaded:
                while len(self._loaded) >= MOST:
                    del self._loaded[next(iter(self._loaded))]
                model = load(path)
                model.eval()
                self._loaded[mark] = Kept(model, notes(path), path, trial)
            return self._loaded[mark]
