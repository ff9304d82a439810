"""What a study's `run` is given: where to work, where to write, how loud to be."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ..models import Model
from .store import Store, Trial

MODEL = "model.safetensors"
FLUSH_AFTER = 1.0  # seconds: a killed trial loses at most so much of its curves


class Desk:
    """One trial's place: `device`, `folder` for artefacts, `log(step, **metrics)`, `save(name, thing)`."""

    def __init__(self, trial: Trial, store: Store, *, device: str = "cpu", tick: Callable | None = None):
        self.trial, self.device = trial, torch.device(device)
        self._store, self._tick = store, tick
        self._waiting: list[tuple[int, str, int, float]] = []
        self._written = time.monotonic()

    @property
    def folder(self) -> Path:
        """For checkpoints and pictures; made when first asked for."""
        self.trial.folder.mkdir(parents=True, exist_ok=True)
        return self.trial.folder

    def log(self, step: int, **metrics: Any) -> None:
        """Numbers of a step, streamed to the store."""
        self._waiting += [(self.trial.id, name, step, float(value)) for name, value in metrics.items()]
        if time.monotonic() - self._written > FLUSH_AFTER:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._store.log_many(self._waiting)
            self._waiting = []
        self._written = time.monotonic()

    def progress(self, share: float) -> None:
        """How much of this trial is done, 0 to 1."""
        if self._tick is not None:
            self._tick(share)

    def keep(self, model: Model, **notes: Any) -> Path:
        """Keep a model where `lab.kept` and the verbs that use models find it, as often as it gets better.

        `use` in the notes says what for: "text" (with `symbols`), "segments" (with `classes`), "nodes" (with
        `classes` and the `dataset` whose graph it is for), or "classes" (with `classes`, `channels` and
        `size`; `mean` and `deviation` where pixels do not go from 0 to 1).
        """
        return model.save(self.folder / MODEL, notes={"study": self.trial.study, **notes})

    def save(self, name: str, thing: Any) -> Path:
        """Keep an artefact: text, bytes, a dictionary of tensors, a model with `save`, or a figure."""
        path = self.folder / name
        if isinstance(thing, str):
            path.write_text(thing)
        elif isinstance(thing, bytes):
            path.write_bytes(thing)
        elif isinstance(thing, dict) and all(isinstance(value, torch.Tensor) for value in thing.values()):
            from safetensors.torch import save_file

            save_file({key: value.detach().cpu().contiguous() for key, value in thing.items()}, path)
        elif hasattr(thing, "savefig"):
            thing.savefig(path)
        elif hasattr(thing, "save"):
            thing.save(path)
        else:
            raise TypeError(f"save({name!r}): cannot keep a {type(thing).__name__}.")
        return path


def flush_all(desks: Sequence[Desk]) -> None:
    for desk in desks:
        desk.flush()
