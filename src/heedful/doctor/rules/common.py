"""What rules share: the register they stand in, and short questions to the facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from torch import nn

from ..facts import Batch, Calls, Facts, Seen
from ..findings import Finding

Rule = Callable[[Facts], Iterable[Finding]]
RULES: list[tuple[str, Rule]] = []


def rule(tier: str = "light"):
    """A rule of a tier: "normal" ones experiment on copies, "deep" ones take their time."""

    def register(function: Rule) -> Rule:
        RULES.append((tier, function))
        return function

    return register


def stepping(facts: Facts) -> list[Seen]:
    return [seen for seen in facts.optimizers.values() if seen.steps]


def alone(facts: Facts) -> Seen | None:
    """The optimizer, where there is one: with several, losses of different things are mixed."""
    found = stepping(facts)
    return found[0] if len(found) == 1 else None


def first_batch(facts: Facts, whole: bool = False) -> tuple[Calls, nn.Module, Batch] | None:
    """The first recorded batch of a model of which there is a copy as it was at the start.

    `whole` asks that the model holds all that is trained: of parts trained together, one alone says nothing.
    """
    trained = {key for key, slot in facts.slots.items() if slot.norm > 0}
    for batch in facts.batches:
        calls = facts.models.get(id(batch.model))
        if calls is not None and calls.initial is not None and not (whole and trained - calls.parameters):
            return calls, calls.initial, batch
    return None


def losses(facts: Facts) -> list[float]:
    return [value for _, value in facts.losses]


def median(numbers) -> float:
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2] if ordered else math.nan


def parameters(count: int) -> str:
    return "1 parameter" if count == 1 else f"{count} parameters"


def some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
