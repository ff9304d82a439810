"""A training step as one CUDA graph: recorded once, then replayed without Python between its kernels.

A small model's step is a hundred kernels of microseconds each, and starting them one by one takes longer than
they do. Recorded, they start as one.

What is recorded is what the GPU was told, not the Python that told it: a loss that counts its own calls,
prints or reads the clock does so while it is recorded and never again. So a recording is made only where it
is asked for (`train(…, capture=True)`), and only of steps that are alike: the same shapes, and settings of
the optimizer that stay as they are, but for rates that follow a schedule: those are read from the GPU. Random
numbers go on from step to step as without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adam, AdamW, Optimizer
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..kernels.recording import captured, recorded_in, spare_numbers
from .step import Found, Step

WARM = 3  # steps seen until one is recorded: they compile, plan, and make the optimizer's state
MOST = 4  # recordings
SCHEDULED = (SGD, Adam, AdamW)  # optimizers that take a rate from the GPU


class CapturedStep:
    """A `Step` that is recorded once it has warmed up, and replayed for every step like it.

    Steps that differ (the last, smaller batch of an epoch; another learning rate) get recordings of their
    own, up to `MOST`; beyond that they are taken as usual.
    """

    def __init__(self, take: Step):
        self.take = take
        self.reason = unsuited(take)  # why nothing is recorded
        self.broken = False  # a recording broke off: the generator that others were made with is gone
        if self.reason:
            self._warn()
        else:
            make_capturable(take.optimizer)
            self._side = torch.cuda.Stream()
        self._rates = _Rates(take.optimizer) if take.schedule is not None and not self.reason else None
        self._seen: dict[tuple, list[list]] = {}  # by kind of step, what the last ones were given
        self._recordings: dict[tuple, _Recording] = {}
        self._last: _Recording | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.take, name)

    def __call__(self, window: list, place: str) -> tuple[float, Found]:
        if self.reason:
            return self.take(window, place)
        taken = self._computed(window, place)
        self.take.move_on()
        return taken

    def _computed(self, window: list, place: str) -> tuple[float, Found]:
        if self._rates is not None:
            self._rates.follow()
        settings = settings_of(self.take.optimizer, rates=self._rates is None)
        last = self._last
        if last is not None and last.repeats(window, settings):
            return last.total, last.replay()
        leaves, form = tree_flatten(window)
        counts = tuple(self.take.samples(batch) for batch in window)
        key = (form, counts, tuple(map(_kind, leaves)), settings)
        recording = self._last = self._recordings.get(key)
        if recording is not None:
            if recording.feed(leaves):
                return recording.total, recording.replay()
            del self._recordings[key]  # something came anew that was taken to stay
            self._last = None
        seen = self._seen.setdefault(key, [])
        seen[:] = [*seen[1 - WARM :], leaves]
        if len(seen) < WARM or len(self._recordings) >= MOST:
            return self._as_usual(window, place, judge=len(seen) > 1)  # the first may compile and wait
        generator = torch.cuda.default_generators[torch.cuda.current_device()]
        spare = generator.clone_state()
        try:
            with nullcontext() if self._rates is None else self._rates.on_the_gpu():
                recording = _Recording(self.take, seen, form, place, float(sum(counts)))
        except Exception as error:  # whatever it is, the step itself can still be taken
            generator.graphsafe_set_state(spare)  # the one it had still takes itself to be recorded
            self.broken = True
            self._give_up(f"a step cannot be recorded ({error})")
            return self.take.computed(window, place)
        self._recordings[key] = self._last = recording
        recording.window, recording.settings = list(window), settings
        return recording.total, recording.replay()

    def _as_usual(self, window: list, place: str, judge: bool) -> tuple[float, Found]:
        """Beside the stream of everything else: what is made there can be recorded later.

        A step that waits for the GPU is told by torch, so that no recording of it is tried: broken off, one
        leaves torch's generator unusable.
        """
        self._side.wait_stream(torch.cuda.current_stream())
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with torch.cuda.stream(self._side), warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                found = self.take.computed(window, place)
        finally:
            torch.cuda.set_sync_debug_mode(before)
        torch.cuda.current_stream().wait_stream(self._side)
        waits = [one for one in told if "synchronizing CUDA operation" in str(one.message)]
        for one in told:
            if one not in waits:
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        if waits and judge:
            where = f"{waits[-1].filename}:{waits[-1].lineno}"
            self._give_up(f"a step cannot be recorded (it waits for the GPU, {where})")
        return found

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        self._recordings.clear()
        self._last = None
        self._warn()

    def _warn(self) -> None:
        warnings.warn(f"train(capture=True): {self.reason}; steps are taken as usual.", stacklevel=4)


class _Recording:
    """One kind of step. Tensors that were the same object in all steps seen are read where they lie; of
    others it has its own, into which every batch is copied.
    """

    def __init__(self, take: Step, seen: list[list], form: Any, place: str, total: float):
        self.total = total  # samples
        self.window: list = []
        self.settings: tuple = ()
        leaves = seen[-1]
        stays = [all(other[n] is leaf for other in seen) for n, leaf in enumerate(leaves)]
        own = [leaf if same else _twin(leaf) for leaf, same in zip(leaves, stays, strict=True)]
        self.staying = [(n, own[n]) for n, same in enumerate(stays) if same]
        self.changing = [(n, own[n]) for n, same in enumerate(stays) if not same]
        self.graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with recorded_in(self.graph):
            _, self.found = take.computed(tree_unflatten(own, form), place)

    def repeats(self, window: list, settings: tuple) -> bool:
        """Whether this is the step before, once more: the very same batches, and nothing to be copied."""
        if self.changing or len(window) != len(self.window):
            return False
        if any(one is not other for one, other in zip(window, self.window, strict=True)):
            return False
        return self.settings == settings

    def feed(self, leaves: list) -> bool:
        """Put a batch where it is read; False if something came anew that was taken to stay."""
        if any(leaves[n] is not leaf for n, leaf in self.staying):
            return False
        for n, place in self.changing:
            place.copy_(leaves[n], non_blocking=True)
        return True

    def replay(self) -> Found:
        self.graph.replay()
        return {
            name: value.clone() if isinstance(value, Tensor) else value for name, value in self.found.items()
        }


class _Rates:
    """Learning rates as numbers on the GPU, where a recording reads them.

    The optimizer holds tensors only while it is recorded: schedules, checkpoints and whoever else looks find
    the numbers they know.
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        device = optimizer.param_groups[0]["params"][0].device
        self.known = [float(part["lr"]) for part in optimizer.param_groups]
        self.tensors = [torch.tensor(rate, dtype=torch.float32, device=device) for rate in self.known]

    def follow(self) -> None:
        """Tell the GPU of what has changed."""
        for place, part in enumerate(self.optimizer.param_groups):
            if part["lr"] != self.known[place]:
                self.known[place] = part["lr"]
                self.tensors[place].fill_(part["lr"])

    @contextmanager
    def on_the_gpu(self) -> Iterator[None]:
        for part, tensor in zip(self.optimizer.param_groups, self.tensors, strict=True):
            part["lr"] = tensor
        try:
            yield
        finally:
            for part, rate in zip(self.optimizer.param_groups, self.known, strict=True):
                part["lr"] = rate


class CapturedEvaluation:
    """evaluate(model) recorded, if all it finds are tensors on the GPU, while steps may be recorded, too."""

    def __init__(self, evaluate: Callable[[nn.Module], Found], step: CapturedStep):
        self.evaluate, self.step, self.calls = evaluate, step, 0
        self.replay: Callable[[], Found] | None = None
        self.suited = True

    def __call__(self, model: nn.Module) -> Found:
        if self.replay is not None and not self.step.broken:
            return self.replay()
        self.calls += 1
        if not self.suited or self.calls < WARM or self.step.broken:
            found = self.evaluate(model)
            tensors = isinstance(found, Mapping) and all(
                isinstance(value, Tensor) and value.is_cuda for value in found.values()
            )
            self.suited = self.suited and tensors
            return found
        try:
            with spare_numbers():  # recorded steps go on with the generator they were recorded with
                captured(lambda: self.evaluate(model), warm=1)
            self.replay = captured(lambda: self.evaluate(model), warm=0)
        except Exception as error:
            self.suited = False
            warnings.warn(f"train(capture=True): evaluate cannot be recorded: {error}", stacklevel=4)
            torch.cuda.synchronize()
        return self(model)


class RecordedStack:
    """A step of a stack, function(window, totals), recorded while the same batches come again and again."""

    def __init__(self, function: Callable[..., dict[str, Tensor]]):
        self.function = function
        self.forget()

    def forget(self) -> None:
        """The stack has changed: begin again."""
        self.given: list = []
        self.times = 0
        self.replay: Callable[[], dict[str, Tensor]] | None = None

    def __call__(self, window: list, totals: list[float]) -> dict[str, Tensor]:
        given = [part for joined in window for part in (joined.batch, *joined.counts)]
        same = len(given) == len(self.given) and all(
            a is b or (not isinstance(a, Tensor) and a == b) for a, b in zip(given, self.given, strict=True)
        )
        if not same:
            self.forget()
        self.given, self.times = given, self.times + 1
        if self.replay is None and self.times > WARM:
            self.replay = captured(lambda: self.function(window, totals), warm=0)
        if self.replay is not None:
            return self.replay()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            found = self.function(window, totals)
        torch.cuda.current_stream().wait_stream(side)
        return found


def unsuited(take: Step) -> str:
    """Why a step cannot be recorded, or ""."""
    if take.parameters[0].device.type != "cuda":
        return "the model is not on a CUDA device"
    if isinstance(take.optimizer, LBFGS):
        return "LBFGS looks at its numbers to go on"
    if take.precision.scaler is not None:
        return "float16 looks at its gradients before every step; take bfloat16"
    if not take.group.alone:
        return "several processes take part"
    if take.schedule is not None:
        if type(take.optimizer) not in SCHEDULED:
            known = ", ".join(kind.__name__ for kind in SCHEDULED)
            return f"with a schedule, {known} can be recorded, and not {type(take.optimizer).__name__}"
        if getattr(take.schedule, "cycle_momentum", False):
            return "the schedule changes the momentum at every step, and a recording has it fixed"
        if any(isinstance(part["lr"], Tensor) for part in take.optimizer.param_groups):
            return "its rates are tensors already, which the schedule may replace"
    return ""


def make_capturable(optimizer: Optimizer) -> None:
    """Count steps on the GPU, and update all parameters by one kernel where torch has one."""
    for part in optimizer.param_groups:
        if "capturable" in part:
            part["capturable"] = True
        if part.get("fused", 0) is None and not part.get("foreach"):
            part["fused"] = all(p.is_floating_point() for p in part["params"])
    for parameter, state in optimizer.state.items():
        if isinstance(state.get("step"), Tensor):
            state["step"] = state["step"].to(parameter.device)


def settings_of(optimizer: Optimizer, *, rates: bool = True) -> tuple:
    """What of an optimizer is fixed in a recording: its numbers, and which parameters it holds."""
    return tuple(
        tuple(
            tuple(map(id, value)) if name == "params" else value
            for name, value in part.items()
            if rates or name != "lr"
        )
        for part in optimizer.param_groups
    )


def _twin(leaf: Tensor) -> Tensor:
    """A copy in the same layout: a compiled step would be compiled anew for another, while it is recorded."""
    if 0 in leaf.stride():  # expanded: many places that are one, into which nothing can be copied
        return leaf.clone()
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device).copy_(leaf)


def _kind(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.shape, leaf.stride(), leaf.dtype, leaf.device
    return leaf if isinstance(leaf, (bool, int, float, str, type(None))) else id(leaf)
