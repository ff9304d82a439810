"""All seeds of an experiment at once, as a stack of models: one launch of each operation, whatever the seeds.

Every seed gets the numbers it would get alone: its own weights and random streams, its own batches, its own
gradient norm to clip, its own stopping rule. One that stops leaves the stack, and the others go on. Sums over
stacked tensors may go in another order than over single ones, so results agree to rounding, not to the bit.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from . import randomness, snapshot
from .experiment import Experiment, Outcome
from .feeds import Feeds, Joined
from .history import Best, Recorder
from .loop import LATE, check_options, evaluated, in_eval_mode
from .precision import Precision
from .recorded import RecordedStack, make_capturable
from .stack import Stack, Unstackable, changed_by
from .step import not_finite, parted
from .streams import Streams
from .threads import Threads


def run_stacked(
    experiment: Experiment,
    seeds: list[int],
    *,
    done: Callable[[Outcome], object] | None = None,
    store: Callable[[int], Any] | None = None,
    watch: Callable[[], object] | None = None,
) -> list[Outcome]:
    """The outcomes, in the order of the seeds; `done` hears of each as it stops, `watch` after every step."""
    before = randomness.capture()
    try:
        work = _Stacked(experiment, seeds, store, done)
        with work.threads:
            return work.go(watch)
    finally:
        randomness.restore(before)


class _Stacked:
    def __init__(self, experiment: Experiment, seeds: list[int], store, done):
        check_options(
            experiment.epochs,
            experiment.steps,
            experiment.every,
            experiment.accumulate,
            experiment.clip,
            experiment.stop,
            experiment.evaluate,
        )
        self.experiment, self.seeds, self.done = experiment, list(seeds), done
        self.began, self.width = time.perf_counter(), len(seeds)
        self.models, generators = [], []
        for seed in seeds:
            self.models.append(experiment.build(seed).train())
            generators.append(randomness.capture())
        self.device = next(self.models[0].parameters()).device
        if experiment.precision == "float16":
            raise Unstackable("float16 scales the gradients of all seeds by one number; take bfloat16.")
        self.precision = Precision(experiment.precision, self.device)
        self.streams = Streams([state["torch"] for state in generators])
        if self.device.type == "cuda":
            place = self.device.index or 0
            self.streams.add_cuda(self.device, [state["cuda"][place] for state in generators])
        self.feeds = Feeds(experiment, self.seeds, self.streams, generators)
        running, self.first_loss = self._try_alone(generators[0])
        recorded = experiment.capture and self.device.type == "cuda"
        self.stack = Stack(self.models, self.streams, running, together=recorded)
        self.optimizer = self.stack.optimizer(experiment.optimizer, self.models[0])
        self.recording = None
        if recorded and not running and experiment.schedule is None and experiment.clip is None:
            self.recording = RecordedStack(self._computed)
            make_capturable(self.optimizer)
        self.schedule = None if experiment.schedule is None else experiment.schedule(self.optimizer)
        if isinstance(self.schedule, ReduceLROnPlateau):
            raise Unstackable("ReduceLROnPlateau would give each seed a rate of its own.")
        self.recorders = [
            Recorder(copy.deepcopy(experiment.stop), None if store is None else store(seed)) for seed in seeds
        ]
        self.look = looks(self.device)
        self.step = self.epoch = 0
        self.looked = False
        self.noted = 0  # the step of the last evaluation
        self.pending: list[Callable[[], None]] = []  # to be written down, once the numbers are there
        self.threads = Threads(worth=self.device.type == "cpu")
        self.outcomes: dict[int, Outcome] = {}

    def _try_alone(self, generators: dict[str, Any]) -> tuple[set[str], float]:
        """Loss and evaluation of the first seed alone: mistakes in them show as themselves, not through vmap.

        Returns the buffers that change, and the loss.
        """
        randomness.restore(generators)
        batch, losses = next(iter(self.experiment.data(self.seeds[0]))), []

        def function(model: nn.Module) -> None:
            with self.precision():
                losses.append(parted(self.experiment.loss(model, batch))[0].item())
            if self.experiment.evaluate is not None:
                evaluated(model, self.experiment.evaluate, self.precision)

        return changed_by(self.models[0], function, randomness.capture()), losses[0]

    def go(self, watch: Callable[[], object] | None) -> list[Outcome]:
        experiment, seeds, finished = self.experiment, list(self.seeds), 0
        epochs, steps = experiment.epochs or math.inf, experiment.steps or math.inf
        while self.seeds and finished < epochs and self.step < steps:
            self.epoch = finished + 1
            for window in self.feeds.steps():
                with self.threads.step():
                    self._take(window)
                if experiment.every is not None and self.step % experiment.every == 0:
                    self._look()
                if watch is not None:
                    watch()
                if not self.seeds or self.step >= steps:
                    break
            else:
                finished += 1
                if experiment.every is None:
                    self._look()
        self._look()
        self._settle()
        self._leave(dict.fromkeys(range(len(self.seeds)), "done"))
        return [self.outcomes[seed] for seed in seeds]

    def _take(self, window: list[Joined]) -> None:
        """One step of every seed."""
        self.step += 1
        totals = [sum(counts) for counts in zip(*(joined.counts for joined in window), strict=True)]
        means = self._computed(window, totals) if self.recording is None else self.recording(window, totals)
        self.pending.append(
            partial(self._write, self.step, self.epoch, totals, list(means), torch.stack([*means.values()]))
        )
        if len(self.pending) >= LATE:  # many at a time, and an accelerator has the later half to do meanwhile
            self._settle(0 if self.look else LATE // 2)

    def _settle(self, later: int = 0) -> None:
        """Write down what was measured, all but the last few; on an accelerator, wait for it."""
        until = len(self.pending) - later
        pending, self.pending = self.pending[:until], self.pending[until:]
        for write in pending:
            write()

    def _write(self, step: int, epoch: int, totals: list[float], names: list[str], means: Tensor) -> None:
        columns = dict(zip(names, means.tolist(), strict=True))
        if not self.look:
            self._check(columns["loss"], step, epoch)
        for place, numbers in enumerate(zip(*columns.values(), strict=True)):
            row = dict(zip(names, numbers, strict=True))
            self.recorders[place].step(step, epoch, totals[place], row)

    def _computed(self, window: list[Joined], totals: list[float]) -> dict[str, Tensor]:
        """All that is done for a step, and what it measured, (seeds,) each."""
        self.optimizer.zero_grad(set_to_none=True)
        means: dict[str, Tensor] = {}
        for joined in window:
            with self.precision():
                found = self._under_vmap("loss", self._measured, joined.batch, joined.dims)
            shares = [count / total for count, total in zip(joined.counts, totals, strict=True)]
            if len(window) > 1:
                weight = torch.tensor(shares, device=self.device)
                found = {name: number * weight for name, number in found.items()}
            found["loss"].sum().backward()
            for name, number in found.items():
                means[name] = number.detach() + means[name] if name in means else number.detach()
        if self.look:
            self._check(means["loss"].tolist(), self.step, self.epoch)
        if self.experiment.clip is not None:
            means["gradient_norm"] = self._clip(self.experiment.clip)
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()
        return means

    def _measured(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        value, found = parted(self.experiment.loss(model, batch))
        return {"loss": value, **_as_tensors(found, value)}

    def _under_vmap(self, what: str, function: Callable, *arguments: Any) -> dict[str, Tensor]:
        if self.step > 1 and (what == "loss" or self.looked):
            return self.stack(function, *arguments)
        try:
            return self.stack(function, *arguments)
        except Exception as error:  # alone it ran, so vmap is what it cannot be put under
            raise Unstackable(f"{what} cannot be called for all seeds at once: {error}") from error

    def _check(self, losses: list[float], step: int, epoch: int) -> None:
        for seed, value in zip(self.seeds, losses, strict=True):
            if not math.isfinite(value):
                raise not_finite(value, f"step {step} (epoch {epoch}) of seed {seed}", self.optimizer)
        tolerance = 1e-3 if self.precision.dtype is None else 3e-2
        off = abs(losses[0] - self.first_loss) > tolerance * max(1, abs(self.first_loss))
        if step == 1 and self.experiment.accumulate == 1 and off and not self.stack.together:
            raise Unstackable(
                f"stacked, the first loss of seed {self.seeds[0]} is {losses[0]:g}; alone it is "
                f"{self.first_loss:g}. Something in the loss or the model does not follow vmap."
            )

    def _clip(self, largest: float) -> Tensor:
        """Shorten each seed's gradient as a whole, by torch's own formula."""
        gradients = [
            p.grad for part in self.optimizer.param_groups for p in part["params"] if p.grad is not None
        ]
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
        scale = (largest / (norms + 1e-6)).clamp(max=1)
        for gradient in gradients:
            gradient.mul_(scale.view(-1, *[1] * (gradient.dim() - 1)))
        return norms

    def _look(self) -> None:
        """Evaluate every seed; those that have enough leave."""
        if not self.seeds or self.step == self.noted:
            return
        self.noted = self.step
        if self.experiment.evaluate is None:
            self.pending.append(partial(self._note, self.step, self.epoch))  # it can wait for its numbers
            return
        self._settle()
        found: dict[str, Tensor] = {}
        if self.experiment.evaluate is not None:
            with torch.no_grad(), self.precision(), in_eval_mode(self.stack.model):
                found = self._under_vmap("evaluate", self._evaluated)
            self.looked = True
        for name, number in found.items():
            if number.dim() != 1:
                shape = tuple(number.shape[1:])
                raise TypeError(f"train: evaluate(model) measured {name!r} as a tensor of shape {shape}.")
        columns = {name: number.tolist() for name, number in found.items()}
        leaving = {}
        for place, recorder in enumerate(self.recorders):
            row = {name: numbers[place] for name, numbers in columns.items()}
            verdict = recorder.evaluation(self.step, self.epoch, row)
            if verdict.best:
                recorder.history.best = Best(self.stack.weights(place), recorder.history.last)
            if verdict.stop:
                leaving[place] = f"{recorder.rule} at epoch {self.epoch}"
        if leaving:
            self._leave(leaving)

    def _note(self, step: int, epoch: int) -> None:
        """The row of an epoch that is not evaluated."""
        for recorder in self.recorders:
            recorder.evaluation(step, epoch, {})

    def _evaluated(self, model: nn.Module, _: Any) -> dict[str, Tensor]:
        return _as_tensors(self.experiment.evaluate(model), torch.zeros((), device=self.device))  # type: ignore[misc]

    def _leave(self, leaving: dict[int, str]) -> None:
        """Test these seeds and go on without them."""
        for place, why in leaving.items():
            seed, model, history = self.seeds[place], self.models[place], self.recorders[place].history
            history.stopped = why
            history.seconds = (time.perf_counter() - self.began) / self.width  # its share
            snapshot.load_weights(model, self.stack.weights(place))
            with self.streams.seed(place):
                self.outcomes[seed] = self.experiment.outcome(seed, model, history)
            if self.done is not None:
                self.done(self.outcomes[seed])
        rest = [place for place in range(len(self.seeds)) if place not in leaving]
        self.seeds = [self.seeds[place] for place in rest]
        self.models = [self.models[place] for place in rest]
        self.recorders = [self.recorders[place] for place in rest]
        if rest:
            self.stack.keep(rest, self.optimizer)
            if self.recording is not None:
                self.recording.forget()
            self.feeds.keep(rest)


def looks(device: torch.device) -> bool:
    """Whether numbers are looked at as they come: elsewhere than on the CPU that means to wait for them."""
    return device.type == "cpu"


def _as_tensors(found: Any, like: Tensor) -> dict[str, Tensor]:
    return {
        name: value if isinstance(value, Tensor) else torch.tensor(float(value), device=like.device)
        for name, value in found.items()
    }
