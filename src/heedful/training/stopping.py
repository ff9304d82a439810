"""When to stop, and which weights to keep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    """What a rule thinks of an evaluation: are these the best weights so far, and is it enough?"""

    best: bool
    stop: bool


class Patience:
    """Stop at the `patience`-th evaluation in a row without improvement; keep the best weights.

    Args:
        patience: how many; None never stops, and only keeps the best.
        ties: whether being as good as the best counts as an improvement.
        metrics: what `evaluate` returns, and which way is better: "min" or "max".

    With several metrics, one that improves is enough to go on, and the weights are kept when all are at least
    as good as they ever were and one is better (with `ties`, when all are as good).

    >>> rule = Patience(2, val_loss="min")
    >>> [rule.update({"val_loss": loss}).stop for loss in (1.0, 0.5, 0.7, 0.6)]
    [False, False, False, True]
    >>> gat = Patience(100, val_loss="min", val_accuracy="max", ties=True)
    """

    def __init__(self, patience: int | None, *, ties: bool = False, **metrics: str):
        if patience is not None and (not isinstance(patience, int) or patience < 1):
            raise ValueError(
                f"Patience: patience is {patience!r}; it takes an integer of at least 1, or None."
            )
        if not metrics:
            raise ValueError('Patience: say which metric and which way, as in Patience(10, val_loss="min").')
        for name, way in metrics.items():
            if way not in ("min", "max"):
                raise ValueError(f'Patience: {name}={way!r}; it takes "min" or "max".')
        self.patience, self.ties, self.metrics = patience, ties, metrics
        self.best = {name: math.inf if way == "min" else -math.inf for name, way in metrics.items()}
        self.since = 0

    def update(self, found: Mapping[str, float]) -> Verdict:
        """Take note of an evaluation. What is not a number is no improvement."""
        better, good = [], []
        for name, way in self.metrics.items():
            if name not in found:
                raise ValueError(
                    f"Patience: there is no {name!r} among what evaluate() returned ({', '.join(found)})."
                )
            new, old = found[name], self.best[name]
            better.append(new < old if way == "min" else new > old)
            good.append(better[-1] or new == old)
        improved = good if self.ties else better
        self.since = 0 if any(improved) else self.since + 1
        for name, up in zip(self.metrics, better, strict=True):
            if up:
                self.best[name] = found[name]
        return Verdict(all(good) and any(improved), self.patience is not None and self.since >= self.patience)

    def state(self) -> dict[str, Any]:
        return {"best": dict(self.best), "since": self.since}

    def restore(self, state: Mapping[str, Any]) -> None:
        if set(state["best"]) != set(self.metrics):
            raise ValueError(
                f"Patience: the state is of {', '.join(state['best'])}; this rule looks at "
                f"{', '.join(self.metrics)}."
            )
        self.best, self.since = dict(state["best"]), state["since"]

    def __repr__(self) -> str:
        given = "".join(f", {name}={way!r}" for name, way in self.metrics.items())
        return f"Patience({self.patience}{given}{', ties=True' if self.ties else ''})"
