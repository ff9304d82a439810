"""Models that studies trained and kept, found again by run, variant and seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..models import Model, load, notes
from .desk import MODEL
from .store import Run, Store, Trial, opened
from .study import find


@dataclass(frozen=True)
class Kept:
    """A model, what its users must know (`notes`), and the trial it came from, None for a bare file."""

    model: Model
    notes: dict[str, Any]
    path: Path
    trial: Trial | None = None

    def __str__(self) -> str:
        if self.trial is None:
            return str(self.path)
        study = find(self.trial.study)
        label = study.label(study.settings(**self.trial.settings))
        unfinished = "" if self.trial.status == "done" else f", {self.trial.status}"
        return f"{study.name}: {label}, seed {self.trial.seed}{unfinished}"


def kept(
    run: str = "latest",
    *,
    store: Store | str = "runs",
    use: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    device: str = "cpu",
) -> Kept:
    """The model of a run, also of one that still trains; the first variant and seed that fit.

    `run` is a run's name, the beginning of one, a study, a model's file, or "latest": the newest run that has
    a model for this `use` ("text", "classes", "segments", "nodes").
    """
    if Path(run).is_file():
        return _fitting(Kept(load(run, device=device), notes(run), Path(run)), use)
    store = store if isinstance(store, Store) else opened(store)
    if run == "latest":
        asked = store.runs()
        if not asked:
            store.run(run)  # says that there are none
    else:
        asked = [store.run(run)]
    found: list[str] = []
    for one in asked:
        for trial, path in _models(store, one):
            about = notes(path)
            found.append(f"{trial.study} ({about.get('use')})")
            if _wanted(trial, settings, seed) and use in (None, about.get("use")):
                return Kept(load(path, device=device), about, path, trial)
    what = f"model for {use}" if use else "model"
    asking = [f"{name}={value}" for name, value in (settings or {}).items()]
    asking += [] if seed is None else [f"seed {seed}"]
    where = f"{store.folder}: no {what} in {'any run' if run == 'latest' else asked[0].id}"
    where += f" with {', '.join(asking)}" if asking else ""
    there = f"; there is {', '.join(dict.fromkeys(found))}" if found else ""
    raise ValueError(f"{where}{there}. Train one with {_TEACHERS.get(use or '', 'heedful run STUDY')}.")


_TEACHERS = {
    "text": "heedful run fairytales",
    "classes": "heedful run vit or heedful run rotation",
    "segments": "heedful run unet",
    "nodes": "heedful run cora",
}


def _models(store: Store, run: Run) -> Iterator[tuple[Trial, Path]]:
    for trial in store.trials(run):
        path = trial.folder / MODEL
        if path.is_file():
            yield trial, path


def _wanted(trial: Trial, settings: Mapping[str, Any] | None, seed: int | None) -> bool:
    asked = find(trial.study).checked(settings or {}) if settings else {}
    return seed in (None, trial.seed) and all(trial.settings[name] == value for name, value in asked.items())


def _fitting(found: Kept, use: str | None) -> Kept:
    has = found.notes.get("use")
    if use is not None and has != use:
        raise ValueError(f"{found.path} is a model for {has or 'no use it tells'}, not for {use}.")
    return found
