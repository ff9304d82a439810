"""A finding: how bad, where, the number beside its healthy range, cause, patch, proof."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .kinds import BUILT_IN, KINDS, Kind, Severity


@dataclass
class Place:
    """A line of somebody's file."""

    file: str
    line: int
    text: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass
class Finding:
    """One thing that is wrong: how bad, where, the number beside its healthy range, cause, patch, proof."""

    name: str
    measured: float | None
    what: str
    severity: Severity = "serious"
    where: str = ""
    place: Place | None = None
    cause: str = ""
    patch: str = ""
    proof: str = ""
    consequences: list[str] = field(default_factory=list)
    subject: Any = field(default=None, repr=False, compare=False)  # what it is about, while the run is here

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    def to_dict(self) -> dict[str, Any]:
        found = asdict(replace(self, subject=None))
        del found["subject"]
        number = self.measured
        found["measured"] = number if number is None or math.isfinite(number) else str(number)
        found["healthy"] = self.kind.healthy
        if self.name not in BUILT_IN:
            found["kind"] = asdict(self.kind)
        return found

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Finding:
        found = {key: entry for key, entry in found.items() if key != "healthy"}
        kind = found.pop("kind", None)
        if kind is not None:
            KINDS.setdefault(kind["name"], Kind(**kind))
        if found["place"] is not None:
            found["place"] = Place(**found["place"])
        if isinstance(found["measured"], str):
            found["measured"] = float(found["measured"])
        return cls(**found)


def finding(name: str, measured: float | None, what: str, **options) -> Finding:
    """A finding of a known kind, with the kind's severity and cause unless told otherwise."""
    kind = KINDS[name]
    return Finding(name, measured, what, **{"severity": kind.severity, "cause": kind.cause, **options})
