"""Checks of arguments, in the words a user needs: which argument, what it got, what it takes."""

from __future__ import annotations

from collections.abc import Iterable

from ..phrases import suggestion


def check_choice(where: str, name: str, given: str, known: Iterable[str]) -> None:
    known = list(known)
    if given not in known:
        choices = ", ".join(repr(each) for each in known)
        near = suggestion(given, known) if isinstance(given, str) else ""
        raise ValueError(f"{where}({name}={given!r}): takes one of {choices}{near}.".replace("?.", "?"))


def check_count(where: str, *, least: int = 1, **counts: int) -> None:
    for name, given in counts.items():
        if isinstance(given, bool) or not isinstance(given, int) or given < least:
            raise ValueError(f"{where}({name}={given!r}): takes a whole number, {least} or more.")


def check_share(where: str, **shares: float) -> None:
    for name, given in shares.items():
        if not 0 <= given < 1:
            raise ValueError(f"{where}({name}={given!r}): takes a share, 0 or more and less than 1.")
