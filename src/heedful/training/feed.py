"""Batches one optimizer step at a time, from a place that can be found again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch import Tensor

from . import randomness


class Feed:
    """Gives an epoch as lists of `accumulate` batches, each a step's worth; the last may have fewer.

    What has `state()` and `restore()` (`Batches`) is asked for its place, or the epoch under way is, if it
    can tell: an evaluation may go through the same batches. Of anything else (a list, a DataLoader) the given
    batches are counted, and going on means to begin the epoch again, with the generators as they were then,
    and to pass over as many: the order a DataLoader draws comes out the same.
    """

    def __init__(self, batches: Iterable, accumulate: int = 1, *, resumable: bool = False):
        self.batches, self.accumulate = batches, accumulate
        self.position = 0  # batches given in this epoch
        self._own = hasattr(batches, "state") and hasattr(batches, "restore")
        self._place: Any = batches  # who tells where it stands, if it is their own
        self._drawn = resumable and not self._own and not isinstance(batches, (list, tuple))
        self._start: dict[str, Any] | None = None
        self._now: dict[str, Any] | None = None

    def steps(self) -> Iterator[list]:
        """The (rest of the) epoch."""
        rest = self._rest()
        while window := list(islice(rest, self.accumulate)):
            self.position += len(window)
            yield window
        if self.position == 0:
            raise ValueError(
                "train: batches gave nothing. A generator can be gone through once; pass a list, a "
                "DataLoader or Batches."
            )
        self.position = 0

    def _rest(self) -> Iterator:
        if self._own:
            rest = iter(self.batches)
            self._place = rest if hasattr(rest, "state") else self.batches
            return rest
        if not self._drawn:
            return islice(self.batches, self.position, None)
        if not self.position:
            self._start = self._generators()
            return iter(self.batches)
        self._rewind(self._start)
        rest = iter(self.batches)
        for _ in islice(rest, self.position):
            pass
        self._rewind(self._now)
        return rest

    def _generators(self) -> dict[str, Any]:
        own = getattr(self.batches, "generator", None)  # a DataLoader may have one of its own
        return {"global": randomness.capture(), "own": None if own is None else own.get_state()}

    def _rewind(self, state: dict[str, Any] | None) -> None:
        if state is None:
            return
        randomness.restore(state["global"])
        if state["own"] is not None:
            self.batches.generator.set_state(state["own"])  # type: ignore[attr-defined]

    def state(self) -> dict[str, Any]:
        return {
            "position": self.position,
            "own": self._place.state() if self._own else None,
            "start": self._start if self.position else None,
            "now": self._generators() if self._drawn else None,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        if (state["own"] is not None) != self._own:
            raise ValueError(
                f"the checkpoint is of a training whose batches were of another kind than "
                f"{type(self.batches).__name__}."
            )
        self.position, self._start, self._now = state["position"], state["start"], state["now"]
        if self._now is not None and self._now["own"] is not None:
            self.batches.generator.set_state(self._now["own"])  # type: ignore[attr-defined]
        if self._own:
            self.batches.restore(state["own"])  # type: ignore[attr-defined]


def samples_in(batch: Any) -> int:
    """How many samples a batch holds: the length of the first tensor in it; 1 where there is none (a
    graph).
    """
    if isinstance(batch, Tensor):
        return len(batch) if batch.dim() else 1
    if isinstance(batch, Mapping):
        batch = batch.values()
    elif not isinstance(batch, (list, tuple)):
        return 1
    for part in batch:
        if isinstance(part, (Tensor, Mapping, list, tuple)):
            return samples_in(part)
    return 1
