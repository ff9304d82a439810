"""A training loop as a function: any module, any loss, any iterable of batches, any torch optimizer."""

from __future__ import annotations

import copy
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from . import randomness, snapshot
from .checkpoint import Checkpoint
from .distribution import Group
from .feed import Feed, samples_in
from .history import Best, History, Recorder
from .precision import Precision
from .progress import Bar
from .step import Found, Loss, Step, not_finite
from .stopping import Patience

LATE = 16  # steps an accelerator may be ahead of our looking at its numbers


def train(
    model: nn.Module,
    loss: Loss,
    batches: Iterable,
    optimizer: Optimizer,
    *,
    epochs: int | None = None,
    steps: int | None = None,
    accumulate: int = 1,
    clip: float | None = None,
    precision: str = "float32",
    schedule: LRScheduler | None = None,
    evaluate: Callable[[nn.Module], Found] | None = None,
    every: int | None = None,
    stop: Patience | None = None,
    callbacks: Sequence[Callable[[Training], object]] = (),
    checkpoint: Checkpoint | str | os.PathLike | None = None,
    samples: Callable[[Any], float] = samples_in,
    progress: bool = True,
    store: Any = None,
    capture: bool = False,
) -> History:
    """Train a model; the history tells what was measured, and keeps the best weights if a rule asks for them.

    Args:
        model: any module, on its device. It is put into training mode, and into eval mode to be evaluated.
        loss: `loss(model, batch)` gives the mean loss over the batch's samples, or that and a dictionary of
            other numbers to record.
        batches: an epoch is once through it: a list, a `DataLoader`, `Batches`; `[graph]` for full batches.
        optimizer: of the model's parameters.
        epochs, steps: how long: passes over the batches, or optimizer steps. One of the two.
        accumulate: batches a step. Each counts by its samples, so the gradient is that of the joint batch,
            also in the last step of an epoch, which may have fewer.
        clip: largest norm of the gradient as a whole; longer ones are shortened to it.
        precision: "float32", or "bfloat16" or "float16" by autocast (float16 with a gradient scaler); "auto"
            is bfloat16 on a GPU and float32 elsewhere.
        schedule: a torch scheduler of the optimizer, moved on after every step (`ReduceLROnPlateau`: after
            every evaluation, by `val_loss`, or by the training loss where there is none).
        evaluate: `evaluate(model)` gives a dictionary of numbers; called in eval mode without gradients, at
            the end of every epoch, or `every` so many steps, and at the end.
        stop: when to stop and which weights to keep, as `Patience(10, val_loss="min")`.
        callbacks: called with the `Training` after every step, and after every evaluation (then its `row` is
            what was found); its `stop("why")` ends it.
        checkpoint: a folder, or a `Checkpoint`. A training killed at any moment and started again with the
            same arguments goes on from there, and ends with the very same numbers.
        samples: how many samples a batch counts for; by default the length of its first tensor.
        progress: whether to show a progress bar, on a terminal.
        store: anything with `log(step, **numbers)`; if it has `flush()`, that is called before a checkpoint.
        capture: record the step, and evaluate, as CUDA graphs and replay them: for small models, whose
            kernels take less time than starting them. Python inside them then runs a few times only.

    >>> x = torch.randn(64, 3)
    >>> y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
    >>> def loss(model, batch):
    ...     x, y = batch
    ...     return (model(x) - y).square().mean()
    >>> model = nn.Linear(3, 1)
    >>> history = train(model, loss, [(x, y)], torch.optim.Adam(model.parameters(), lr=0.1), epochs=200)
    >>> history.last["loss"] < 0.01
    True
    """
    check_options(epochs, steps, every, accumulate, clip, stop, evaluate)
    if isinstance(optimizer, LBFGS) and (clip is not None or precision == "float16"):
        raise ValueError("train: LBFGS takes its steps itself; it goes with neither clip nor float16.")
    held, own = (
        [p for part in optimizer.param_groups for p in part["params"]],
        set(map(id, model.parameters())),
    )
    if not any(id(parameter) in own for parameter in held):
        raise ValueError(
            "train: the optimizer holds none of the model's parameters; make it from this model."
        )
    if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        checkpoint = Checkpoint(checkpoint)

    group = Group()
    take = Step(
        model,
        loss,
        optimizer,
        clip=clip,
        precision=Precision(precision, held[0].device),
        schedule=schedule,
        samples=samples,
        group=group,
    )
    if capture:
        from .recorded import CapturedEvaluation, CapturedStep

        take = CapturedStep(take)  # type: ignore[assignment]
        if evaluate is not None and not take.reason:  # type: ignore[attr-defined]
            evaluate = CapturedEvaluation(evaluate, take)  # type: ignore[arg-type]
    training = Training(take, evaluate, schedule, callbacks, checkpoint)
    training.feed = Feed(batches, accumulate, resumable=checkpoint is not None)
    training.recorder = Recorder(copy.deepcopy(stop), store if group.first else None)
    total: float | None = steps
    if steps is None and epochs is not None and hasattr(batches, "__len__"):
        total = epochs * -(-len(batches) // accumulate)  # type: ignore[arg-type]
    with Bar(progress and group.first, total) as bar:
        return training.go(epochs or math.inf, steps or math.inf, every, bar)


def check_options(epochs, steps, every, accumulate, clip, stop, evaluate) -> None:
    """What every way of training asks of its options."""
    for name, value in (("epochs", epochs), ("steps", steps), ("every", every), ("accumulate", accumulate)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"train: {name} is {value!r}; it takes an integer of at least 1.")
    if (epochs is None) == (steps is None):
        raise ValueError("train: say how long: epochs, or steps, one of the two.")
    if clip is not None and not (isinstance(clip, (Real, Tensor)) and float(clip) > 0):
        raise ValueError(f"train: clip is {clip!r}; it takes a norm greater than 0.")
    if stop is not None and evaluate is None:
        raise ValueError("train: stop looks at what evaluate returns; pass evaluate, too.")


class Training:
    """A training under way, as callbacks see it."""

    feed: Feed
    recorder: Recorder

    def __init__(self, take: Step, evaluate, schedule, callbacks, checkpoint):
        self.model, self.optimizer = take.model, take.optimizer
        self.take, self.evaluate, self.schedule = take, evaluate, schedule
        self.callbacks, self.checkpoint = callbacks, checkpoint
        self.step = 0  # optimizer steps taken
        self.epoch = 0  # the one under way, from 1
        self.done = 0  # epochs completed
        self.found: Found = {}  # what the last step measured; on an accelerator, tensors
        self.row: Found | None = None  # what an evaluation found, while callbacks are told of it
        self.reason = ""
        self._pending: list[tuple[int, int, float | None, Found]] = []
        self._looked = 0  # the step of the last evaluation

    def stop(self, reason: str = "a callback") -> None:
        """End the training after this step."""
        self.reason = reason

    def go(self, epochs: float, steps: float, every: int | None, bar: Bar) -> History:
        self._resume()
        self._begun = time.perf_counter() - self.recorder.history.seconds
        self.model.train()
        while not self.reason and self.done < epochs and self.step < steps:
            self.epoch = self.done + 1
            for window in self.feed.steps():
                self._step(window)
                if every is not None and self.step % every == 0:
                    self._look()
                if bar.due:
                    self._settle()
                    bar.update(self.step, self._said(), f"epoch {self.epoch}")
                if self.reason or self.step >= steps:
                    break
                self._keep()
            else:
                self.done += 1
                if every is None:
                    self._look()
                if not self.reason:
                    self._keep()
        self._look()
        self._settle()
        self.recorder.history.stopped = self.reason or "done"
        self._keep(now=True)
        return self.recorder.history

    def _step(self, window: list) -> None:
        self.step += 1
        samples, self.found = self.take(window, f"step {self.step} (epoch {self.epoch})")
        self._pending.append((self.step, self.epoch, samples, self.found))
        if self.take.look or len(self._pending) >= LATE:
            self._settle()
        self._tell(None)

    def _settle(self) -> None:
        """Write down what was measured; on an accelerator, wait for it."""
        pending, self._pending = fetched(self._pending), []
        for step, epoch, samples, found in pending:
            if samples is None:
                self.recorder.evaluation(step, epoch, {})
                continue
            numbers = as_numbers(found, "loss")
            if not math.isfinite(numbers["loss"]):
                raise not_finite(numbers["loss"], f"step {step} (epoch {epoch})", self.optimizer)
            self.recorder.step(step, epoch, samples, numbers)

    def _look(self) -> None:
        """Evaluate, unless that was done at this step."""
        if self.step == self._looked:
            return
        self._looked = self.step
        plateau = isinstance(self.schedule, ReduceLROnPlateau)
        if self.evaluate is None and not self.callbacks and not plateau and not self.take.look:
            self._pending.append((self.step, self.epoch, None, {}))  # the row can wait for its numbers
            return
        self._settle()
        history, found = self.recorder.history, {}
        if self.evaluate is not None:
            found = evaluated(self.model, self.evaluate, self.take.precision)
            found = self.take.group.from_first(found)  # all processes must judge alike
        verdict = self.recorder.evaluation(self.step, self.epoch, found)
        if verdict.best:
            history.best = Best(snapshot.copy_of(snapshot.weights_of(self.model)), history.last)
        if verdict.stop:
            self.stop(f"{self.recorder.rule} at epoch {self.epoch}")
        if plateau:
            self.schedule.step(history.last.get("val_loss", history.last["loss"]))
        self._tell(history.last)

    def _tell(self, row: Found | None) -> None:
        self.row = row
        for callback in self.callbacks:
            callback(self)

    def _said(self) -> Found:
        rows = (self.recorder.history.steps[-1:] or [{}])[0], self.recorder.history.last
        said = {**rows[1], "loss": rows[0].get("loss", math.nan)}
        return {name: value for name, value in said.items() if name not in ("step", "epoch")}

    def _keep(self, *, now: bool = False) -> None:
        """A checkpoint, if it is time for one."""
        self.recorder.history.seconds = time.perf_counter() - self._begun
        if self.checkpoint is None:
            return
        due = now or self.checkpoint.due(self.step)
        if self.checkpoint.every is None:  # clocks differ, and all processes take part
            due = self.take.group.from_first(due)
        if due:
            self._settle()
            state = self.state()
            if self.take.group.first:
                self.recorder.flush()
                self.checkpoint.save(self.step, state)

    def _resume(self) -> None:
        if self.checkpoint is None:
            return
        group = self.take.group
        state = group.from_first(self.checkpoint.load() if group.first else None)
        if state is None:
            return
        try:
            self.restore(state)
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"train: the checkpoint in {self.checkpoint.folder} is not of this training: {error} Train "
                f"as before, or begin anew in another folder."
            ) from error

    def state(self) -> dict[str, Any]:
        """All that the next step depends on."""
        group, scaler = self.take.group, self.take.precision.scaler
        return {
            "step": self.step,
            "epoch": self.epoch,
            "done": self.done,
            "weights": snapshot.weights_of(self.model),
            "optimizer": snapshot.optimizer_state(self.model, self.optimizer),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "random": group.gather(randomness.capture()),
            "feed": group.gather(self.feed.state()),
            "recorder": self.recorder.state(),
            "callbacks": [part.state() if hasattr(part, "state") else None for part in self.callbacks],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Stand where `state` says."""
        group, scaler = self.take.group, self.take.precision.scaler
        if len(state["random"]) != group.ranks:
            raise ValueError(f"it was written by {len(state['random'])} processes, here are {group.ranks}.")
        for name, here in (("schedule", self.schedule), ("scaler", scaler)):
            if (state[name] is None) != (here is None):
                raise ValueError(f"it was written {'without' if state[name] is None else 'with'} a {name}.")
        if len(state["callbacks"]) != len(self.callbacks):
            raise ValueError(f"it was written with {len(state['callbacks'])} callbacks.")
        self.step, self.epoch, self.done = state["step"], state["epoch"], state["done"]
        snapshot.load_weights(self.model, state["weights"])
        snapshot.load_optimizer(self.model, self.optimizer, state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        if scaler is not None:
            scaler.load_state_dict(state["scaler"])
        self.recorder.restore(state["recorder"])
        self._looked = int((self.recorder.history.last or {"step": 0})["step"])
        self.feed.restore(state["feed"][group.rank])
        for part, kept in zip(self.callbacks, state["callbacks"], strict=True):
            if kept is not None:
                part.restore(kept)  # type: ignore[attr-defined]
        stopped = self.recorder.history.stopped
        self.reason = "" if stopped == "done" else stopped
        randomness.restore(state["random"][group.rank])


def evaluated(
    model: nn.Module, evaluate: Callable[[nn.Module], Found], precision: Precision, name: str = "evaluate"
) -> dict[str, float]:
    """What evaluate() finds, with the model in eval mode and without gradients."""
    with torch.no_grad(), precision(), in_eval_mode(model):
        found = evaluate(model)
    if not isinstance(found, Mapping):
        raise TypeError(f"train: {name}(model) returned {found!r:.80}; it must be a dictionary of numbers.")
    return as_numbers(found, f"{name}(model)")


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Modes are put back one by one, for a layer may be frozen in eval mode."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode


def fetched(
    pending: list[tuple[int, int, float | None, Found]],
) -> list[tuple[int, int, float | None, Found]]:
    """The same with numbers in place of an accelerator's tensors, which come over together."""
    apart: dict[tuple, list[tuple[dict, str, Tensor]]] = {}
    pending = [(step, epoch, samples, dict(found)) for step, epoch, samples, found in pending]
    for *_, found in pending:
        for name, value in found.items():
            if isinstance(value, Tensor) and value.device.type != "cpu" and value.numel() == 1:
                kind = (value.dtype, value.device)
                apart.setdefault(kind, []).append((found, name, value.detach().reshape(())))  # type: ignore[arg-type]
    for places in apart.values():
        numbers = torch.stack([value for *_, value in places]).tolist()
        for (found, name, _), number in zip(places, numbers, strict=True):
            found[name] = float(number)
    return pending


def as_numbers(found: Found, where: str) -> dict[str, float]:
    """Tensors of one number as that number."""
    numbers = {}
    for name, value in found.items():
        try:
            numbers[name] = value if type(value) is float else float(value)
        except (TypeError, ValueError, RuntimeError):
            what = (
                f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)[:80]
            )
            raise TypeError(f"train: {where} measured {name!r} as {what}; it must be one number.") from None
    return numbers
