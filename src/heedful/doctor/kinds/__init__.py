"""What can be wrong with a training run: every finding with its number, threshold and reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["serious", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("serious", "warning", "note")


@dataclass(frozen=True)
class Kind:
    """A finding as its page describes it: the number, what is healthy, why that threshold, cause and fix."""

    name: str
    family: Literal["loop", "signal", "leak"]
    severity: Severity
    title: str
    symptom: str
    measures: str
    healthy: str
    reason: str
    cause: str
    fix: str
    patch: str  # what the doctor writes into the script, or why it writes nothing
    explains: tuple[str, ...] = ()  # findings that follow from this one, and are told with it


KINDS: dict[str, Kind] = {}


def kind(*details, **options) -> None:
    made = Kind(*details, **options)
    KINDS[made.name] = made


from . import loop, signal, leaks  # noqa: E402, F401, I001  (in the order they are told)

BUILT_IN = frozenset(KINDS)  # the others are a script's own, which other processes do not know
