"""What happened in a training: a row for each step, a row for each evaluation, and the best weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .stopping import Patience, Verdict

Row = dict[str, float]


@dataclass
class Best:
    """The weights a stopping rule liked best, where they were found, and what was measured there."""

    weights: dict[str, Tensor]
    row: Row


@dataclass
class History:
    """What a training measured.

    steps:    a row for each optimizer step: step, epoch, loss and whatever else the loss function returned
    epochs:   a row for each evaluation: epoch, step, the means since the last row, and what evaluate()
        returned
    best:     the weights the stopping rule kept, with their row; None without a rule
    stopped:  why it ended: "done", or what the rule or a callback said
    seconds:  spent in all, before and after interruptions
    """

    steps: list[Row] = field(default_factory=list)
    epochs: list[Row] = field(default_factory=list)
    best: Best | None = None
    stopped: str = ""
    seconds: float = 0.0

    @property
    def last(self) -> Row:
        """The last evaluation's row."""
        return self.epochs[-1] if self.epochs else {}

    def column(self, name: str, rows: str = "epochs") -> list[float]:
        """One number of every row that has it."""
        found = [row[name] for row in getattr(self, rows) if name in row]
        if not found:
            names = dict.fromkeys(key for row in getattr(self, rows) for key in row)
            raise KeyError(f"History: no {name!r} in {rows}; there are {', '.join(names) or 'no rows'}.")
        return found

    def frame(self, rows: str = "epochs"):
        """The rows ("epochs" or "steps") as a pandas DataFrame; needs pandas."""
        try:
            import pandas
        except ImportError:
            raise ImportError(
                "History.frame() needs pandas: pip install pandas. The same rows are in .epochs and .steps."
            ) from None
        return pandas.DataFrame(getattr(self, rows))

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {value:.4g}" for name, value in self.last.items() if name not in _PLACE)
        text = f"History: {len(self.steps)} steps, {len(self.epochs)} evaluations, {self.seconds:.1f} s"
        text += f", stopped: {self.stopped}" if self.stopped not in ("", "done") else ""
        text += f"\n  last: {last}" if last else ""
        if self.best is not None:
            best = ", ".join(f"{k} {v:.4g}" for k, v in self.best.row.items() if k not in _PLACE)
            text += f"\n  best: {best} (epoch {self.best.row['epoch']})"
        return text


_PLACE = ("epoch", "step")


class Recorder:
    """Writes a history: takes note of steps, averages them by samples, and asks the rule at each
    evaluation.
    """

    def __init__(self, rule: Patience | None = None, store: Any = None):
        self.history, self.rule, self.store = History(), rule, store
        self.sums: dict[str, list[float]] = {}  # since the last row: Σ samples · value, Σ samples

    def step(self, step: int, epoch: int, samples: float, found: Mapping[str, float]) -> None:
        self.history.steps.append({"step": step, "epoch": epoch, **found})
        for name, value in found.items():
            total = self.sums.setdefault(name, [0.0, 0.0])
            total[0] += samples * value
            total[1] += samples
        if self.store is not None:
            self.store.log(step, **found)

    def evaluation(self, step: int, epoch: int, found: Mapping[str, float]) -> Verdict:
        row: Row = {"epoch": epoch, "step": step}
        row |= {name: total / samples for name, (total, samples) in self.sums.items() if samples}
        row |= found
        self.sums = {}
        self.history.epochs.append(row)
        if self.store is not None and found:
            self.store.log(step, epoch=epoch, **found)
        return Verdict(False, False) if self.rule is None else self.rule.update(row)

    def flush(self) -> None:
        """See that the store has what was logged, where it can: a checkpoint must not be ahead of it."""
        if hasattr(self.store, "flush"):
            self.store.flush()

    def state(self) -> dict[str, Any]:
        history, best = self.history, self.history.best
        return {
            "steps": _columns(history.steps),
            "epochs": _columns(history.epochs),
            "best": None if best is None else {"weights": best.weights, "row": best.row},
            "stopped": history.stopped,
            "seconds": history.seconds,
            "sums": self.sums,
            "rule": None if self.rule is None else self.rule.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        best = state["best"]
        self.history = History(
            _rows(state["steps"]),
            _rows(state["epochs"]),
            None if best is None else Best(best["weights"], best["row"]),
            state["stopped"],
            state["seconds"],
        )
        self.sums = {name: list(total) for name, total in state["sums"].items()}
        if (state["rule"] is None) != (self.rule is None):
            raise ValueError("the checkpoint was written with another stopping rule (stop) than this one.")
        if self.rule is not None:
            self.rule.restore(state["rule"])


def _columns(rows: list[Row]) -> dict[str, Any]:
    """Rows as one table of float64, for a hundred thousand of them are a lot of JSON."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = torch.zeros(len(rows), len(names), dtype=torch.float64)
    present = torch.zeros(len(rows), len(names), dtype=torch.bool)
    if rows and all(len(row) == len(names) for row in rows):
        values = torch.tensor([[row[name] for name in names] for row in rows], dtype=torch.float64)
        present[:] = True
    else:
        for place, row in enumerate(rows):
            for name, value in row.items():
                values[place, names.index(name)], present[place, names.index(name)] = value, True
    return {"names": names, "values": values, "present": present}


def _rows(columns: Mapping[str, Any]) -> list[Row]:
    names = columns["names"]
    rows = []
    for values, present in zip(columns["values"].tolist(), columns["present"].tolist(), strict=True):
        row = {n: v for n, v, here in zip(names, values, present, strict=True) if here}
        rows.append(row | {name: int(row[name]) for name in _PLACE if name in row})
    return rows
