"""The watch itself: when to look, when to sleep, and what becomes of a cycle at its end."""

from __future__ import annotations

import gc
import math
import time
from collections import Counter
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ..facts import Calls, Facts, Seen, Slot
from .backward import Backward
from .forward import Forward
from .instruments import Instruments
from .listening import Cycle, Enough
from .reading import Reading
from .steps import Steps

TIERS = {"light": 0.01, "normal": 0.04, "deep": math.inf}  # share of the run's time spent on looking
_ALWAYS = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}  # steps looked at whatever they cost
_FOLLOWED = 20  # steps followed, if not looked at, whatever they cost


class Watch:
    """Observes the training inside its `with` block; `report()` says what is wrong with it.

    >>> import torch
    >>> from heedful import doctor
    >>> model = nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    >>> x, y = torch.randn(32, 4), torch.randn(32, 1)
    >>> with doctor.watch(model, optimizer) as watch:
    ...     for _ in range(10):
    ...         nn.functional.mse_loss(model(x), y).backward()
    ...         optimizer.step()
    >>> [found.name for found in watch.report().findings]
    ['gradients-not-cleared']
    """

    def __init__(self, *subjects: nn.Module | Optimizer, tier: str = "normal", steps: int | None = None):
        if tier not in TIERS:
            raise ValueError(f"watch(): tier is {tier!r}; it is {', '.join(TIERS)}.")
        for subject in subjects:
            if not isinstance(subject, (nn.Module, Optimizer)):
                raise TypeError(f"watch(): takes models and optimizers, got {type(subject).__name__}.")
        if steps is not None and steps < 1:
            raise ValueError(f"watch(): steps is {steps}; it must be 1 or more.")
        self.tier, self.limit = tier, steps
        self.facts = Facts()
        self.given = [subject for subject in subjects if isinstance(subject, Optimizer)]
        self.cycle = Cycle()
        self.looking = False  # this cycle, from one step to the next, is looked at closely
        self.asleep = False  # this cycle is not looked at, but for its loss and evaluations
        self.busy = False  # a listener is at work: what it calls is not listened to
        self.inside = 0  # depth of module calls
        self.readable = True  # saved tensors may be read
        self.forward, self.backward = Forward(self), Backward(self)
        self.reading, self.steps = Reading(self), Steps(self)
        self.instruments = Instruments(self)
        self._report: Any = None

    def __enter__(self) -> Watch:
        self.start = time.perf_counter()
        self.instruments.install()
        for optimizer in self.given:
            self.seen(optimizer)
        self.looking = True
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.instruments.remove()
        self.facts.seconds = time.perf_counter() - self.start
        self.backward.flush()
        if self.cycle.calls:
            self.facts.looks += self.looking  # a step that was begun
            self.cycle_ends(None)
        if kind is not None and not issubclass(kind, (Enough, KeyboardInterrupt, SystemExit)):
            self.facts.raised = f"{kind.__name__}: {error}"

    def report(self):
        """What is wrong, by every rule; experiments run on copies, and random states are put back."""
        if self._report is None:
            from ..rules import judge

            self._all_optimizers()
            self._report = judge(self.facts, self.tier)
        return self._report

    def seen(self, optimizer: Optimizer) -> Seen:
        found = self.facts.optimizers.get(id(optimizer))
        if found is None:
            found = self.facts.optimizers[id(optimizer)] = Seen(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in self.facts.slots:
                    self.facts.slots[id(parameter)] = Slot(parameter)
        return found

    def _all_optimizers(self) -> None:
        """Those that were never seen to step hold parameters too."""
        for thing in gc.get_objects():
            if issubclass(type(thing), Optimizer) and hasattr(thing, "param_groups"):
                self.seen(thing)

    def next(self) -> None:
        """Whether the coming cycle is looked at; before each look one is followed, so that it has a past."""
        steps, usual = self.facts.steps, self.tier != "light"
        if self.tier == "deep":
            asleep, looking = False, True
        elif steps < _FOLLOWED:
            asleep, looking = False, steps in _ALWAYS and (usual or steps < 5)
        elif usual and (steps in _ALWAYS or steps + 1 in _ALWAYS):
            asleep, looking = False, steps in _ALWAYS
        elif self.asleep:
            asleep = self.facts.own > TIERS[self.tier] * (time.perf_counter() - self.start)
            looking = False
        else:
            asleep, looking = self.looking, not self.looking
        if self.asleep and not asleep:
            self._wake()
        self.facts.looks += self.looking
        self.asleep, self.looking = asleep, looking

    def _wake(self) -> None:
        """What happened while asleep is not known: begin afresh."""
        self.cycle = Cycle()
        for seen in self.facts.optimizers.values():
            seen.order, seen.waiting, seen.unscaled = "", False, False
            self.steps.consume(seen)
        for slot in self.facts.slots.values():
            slot.tainted = False

    def cycle_ends(self, seen: Seen | None) -> None:
        """From one step to the next: what was called, in what mode, and how gradients were put together."""
        facts = self.facts
        mine = (
            {id(p) for group in seen.optimizer.param_groups for p in group["params"]}
            if seen is not None
            else set()
        )
        trained: dict[int, list[bool]] = {}
        for record in self.cycle.calls:
            calls: Calls = record["calls"]
            if calls.parameters & mine:
                trained.setdefault(id(calls.model), []).append(record["training"])
        for key, modes in trained.items():
            calls = facts.models[key]
            calls.training_steps += 1
            calls.training_in_eval += not any(modes) and self.forward.sensitive(calls.model)
        # What was cleared since, an epoch's last pieces say, has no part in this step.
        kept = seen.order.rpartition("Z")[2].count("B") if seen is not None else 0
        pieces = self.cycle.pieces[max(0, len(self.cycle.pieces) - kept) :]
        if seen is not None and len(pieces) > 1 and self.looking:
            site, count = Counter(piece["site"] for piece in pieces).most_common(1)[0]
            same = [piece for piece in pieces if piece["site"] == site]
            separate = len({piece["calls"] for piece in same}) == count
            if count > 1 and count == len(pieces) and separate and all(p["factor"] is not None for p in same):
                seen.groups.append((count, sum(p["factor"] for p in same) * self.cycle.rescaled))
        self.cycle = Cycle()


def watch(*subjects: nn.Module | Optimizer, tier: str = "normal") -> Watch:
    """Observe the training of these models and optimizers: `with watch(model, optimizer) as seen: ...`.

    Models and optimizers that are not named are found when they are used. `tier` is "light" (1 % of the run's
    time goes into looking, after the first steps), "normal" (4 %) or "deep" (every step is looked at).
    """
    return Watch(*subjects, tier=tier)
