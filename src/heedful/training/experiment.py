"""An experiment without its seed: what `train` takes, as recipes that can be followed again for every
seed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from . import randomness, snapshot
from .feed import samples_in
from .history import History
from .loop import evaluated, train
from .precision import Precision
from .step import Found, Loss
from .stopping import Patience


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What to train and how, but for the seed; `train_seeds` runs it for many.

    Args:
        model: makes a model; called after every global generator is seeded.
        loss: as for `train`.
        batches: the same for all seeds, or a function that makes them from the seed.
        optimizer: makes an optimizer from a model.
        epochs, steps, accumulate, clip, precision, evaluate, every, stop, samples: as for `train`.
        capture: as for `train`; of a stack, too, whose seeds then draw from one generator together: each as
            random as alone, but not the same numbers.
        schedule: makes a scheduler from an optimizer.
        test: measured once, in eval mode without gradients, on the best weights if `stop` kept some and on
            the last otherwise; returns a dictionary of numbers.

    What is to run stacked is called under `vmap`: loss and evaluate must be tensor functions without a look
    at values (no `.item()`, no `if` on a tensor), and return tensors. `test` is plain Python always.

    >>> import torch
    >>> from heedful.training import train_seeds
    >>> x, y = torch.randn(32, 3), torch.randn(32, 1)
    >>> experiment = Experiment(
    ...     model=lambda: nn.Linear(3, 1),
    ...     loss=lambda model, batch: (model(batch[0]) - batch[1]).square().mean(),
    ...     batches=[(x, y)],
    ...     optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    ...     epochs=3,
    ... )
    >>> [len(outcome.history.steps) for outcome in train_seeds(experiment, 2)]
    [3, 3]
    """

    model: Callable[[], nn.Module]
    loss: Loss
    batches: Iterable | Callable[[int], Iterable]
    optimizer: Callable[[nn.Module], Optimizer]
    epochs: int | None = None
    steps: int | None = None
    accumulate: int = 1
    clip: float | None = None
    precision: str = "float32"
    schedule: Callable[[Optimizer], LRScheduler] | None = None
    evaluate: Callable[[nn.Module], Found] | None = None
    every: int | None = None
    stop: Patience | None = None
    samples: Callable[[Any], float] = samples_in
    test: Callable[[nn.Module], Found] | None = None
    capture: bool = False

    def build(self, seed: int) -> nn.Module:
        """The model of a seed; every global generator is left where building it left them."""
        randomness.seed_all(seed)
        model = self.model()
        if not isinstance(model, nn.Module):
            raise TypeError(f"Experiment: model() returned {model!r:.60}; it must make an nn.Module.")
        return model

    def data(self, seed: int) -> Iterable:
        """The batches of a seed, from their beginning."""
        batches = self.batches(seed) if callable(self.batches) else self.batches
        return copy.copy(batches) if hasattr(batches, "restore") else batches

    def run(
        self,
        seed: int,
        *,
        checkpoint: Any = None,
        store: Any = None,
        progress: bool = False,
        watch: Callable[[], object] | None = None,
    ) -> Outcome:
        """Train one seed by itself; `watch` is called after every step."""
        before = randomness.capture()
        try:
            model = self.build(seed)
            optimizer = self.optimizer(model)
            history = train(
                model,
                self.loss,
                self.data(seed),
                optimizer,
                epochs=self.epochs,
                steps=self.steps,
                accumulate=self.accumulate,
                clip=self.clip,
                precision=self.precision,
                schedule=None if self.schedule is None else self.schedule(optimizer),
                evaluate=self.evaluate,
                every=self.every,
                stop=self.stop,
                samples=self.samples,
                checkpoint=checkpoint,
                callbacks=() if watch is None else (lambda now: watch() if now.row is None else None,),
                progress=progress,
                store=store,
                capture=self.capture,
            )
            return self.outcome(seed, model, history)
        finally:
            randomness.restore(before)

    def outcome(self, seed: int, model: nn.Module, history: History) -> Outcome:
        """Test a trained model."""
        weights = snapshot.copy_of(snapshot.weights_of(model))
        found: Mapping[str, float] = {}
        if self.test is not None:
            if history.best is not None:
                snapshot.load_weights(model, history.best.weights)
            device = next(model.parameters()).device
            found = evaluated(model, self.test, Precision(self.precision, device), "test")
        return Outcome(seed, history, weights, dict(found))


@dataclass
class Outcome:
    """What came of one seed: its history, its last weights (the best are in the history), and its test."""

    seed: int
    history: History
    weights: dict[str, Tensor]
    test: dict[str, float]

    def __repr__(self) -> str:
        rows = {**self.history.last, **self.test}
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in rows.items() if name != "step")
        return f"seed {self.seed}: {numbers}"
