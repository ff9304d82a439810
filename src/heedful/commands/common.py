"""What verbs share: wrong calls told kindly, and JSON that any reader takes."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import tyro

from ..phrases import suggestion

Number = Annotated[int | None, tyro.conf.arg(metavar="INT")]


class UsageError(Exception):
    """What was asked for is not on offer."""


def choose(what: str, given: str, known) -> str:
    if given in known:
        return given
    shown = [name for name in known if not name.startswith("--no-")]
    raise UsageError(f"unknown {what} {given!r}{suggestion(given, known) or '.'} Known: {', '.join(shown)}")


def plain(thing):
    """Ready for strict JSON: numbers that JSON lacks become null."""
    if isinstance(thing, dict):
        return {str(key): plain(entry) for key, entry in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [plain(entry) for entry in thing]
    if isinstance(thing, float) and not math.isfinite(thing):
        return None
    return thing if isinstance(thing, (str, int, float, bool, type(None))) else str(thing)


def print_json(thing: Any) -> None:
    """To the standard output, strictly."""
    print(json.dumps(plain(thing), allow_nan=False))
