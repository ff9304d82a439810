"""What the three listeners share: a guard around each, and the cycle from one step to the next."""

from __future__ import annotations

import functools
import time
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from .watcher import Watch


class Enough(BaseException):
    """As many steps as were asked for; not an Exception, so that no script takes it for its own."""


@dataclass
class Cycle:
    """What is kept from one step to the next, and forgotten then."""

    calls: list[dict] = field(default_factory=list)  # of models
    pieces: list[dict] = field(default_factory=list)  # backward passes
    scales: dict[int, tuple[Any, float]] = field(default_factory=dict)  # losses that a scaler multiplied
    summed: dict[int, float] = field(default_factory=dict)  # norms as the last backward pass left them
    rescaled: float = 1.0  # by how much they were changed before the step
    old: tuple[int, list[Tensor], list[Tensor]] | None = None  # weights before a step


class _Mark:
    """Lives as long as the graph that holds it."""

    __slots__ = ("__weakref__",)


def marked(tensor: Tensor) -> weakref.ref:
    """A reference that dies with the graph behind a tensor."""
    mark = _Mark()
    tensor.grad_fn.metadata["heedful"] = mark  # type: ignore[union-attr, index]
    return weakref.ref(mark)


class Listener:
    """Hears of one side of the run, and writes what it heard into the facts."""

    def __init__(self, watch: Watch):
        self.watch, self.facts = watch, watch.facts


def guarded(method=None, *, always: bool = False):
    """A listener that fails must not fail the run; its time is counted. Asleep, only some are on duty."""
    if method is None:
        return functools.partial(guarded, always=always)

    @functools.wraps(method)
    def inner(self, *arguments, **options):
        watch = self.watch
        if watch.busy or (watch.asleep and not always):
            return None
        start = time.perf_counter()
        watch.busy = True
        try:
            return method(self, *arguments, **options)
        except Exception as error:
            self.facts.note(f"{method.__name__} could not look: {type(error).__name__}: {error}")
            return None
        finally:
            watch.busy = False
            self.facts.own += time.perf_counter() - start

    return inner
