"""Numbers that a user gives, or what to say when they are none."""

from __future__ import annotations

from numbers import Real
from operator import index


def whole(what: str, given, least: int) -> int:
    """A whole number, numpy's as well."""
    try:
        found = given if isinstance(given, int) else index(given)
    except TypeError:
        found = None
    if found is None or isinstance(given, bool) or found < least:
        raise ValueError(f"{what}={given!r}): must be a whole number, {least} or more.")
    return found


def real(what: str, given) -> None:
    if isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError(f"{what}): takes a number, which gets no gradient; got {type(given).__name__}.")
