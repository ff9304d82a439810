"""A form made of a study's settings, and what comes back from it, checked by the study itself."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Union

from ..lab import PROFILES, Study
from ..lab.study import written

MOST_SEEDS = 1000


@dataclass(frozen=True)
class Field:
    """One setting: its name, how it is asked for, what it is unless given."""

    name: str
    kind: str  # choice, whole, number or text
    default: str
    quick: str  # where the quick profile takes another
    choices: tuple[str, ...] = ()
    axis: bool = False  # compared: every choice is run unless one is given


def form(study: Study) -> list[Field]:
    """The fields, what is compared first."""
    hints, settings = typing.get_type_hints(study.settings), study.settings()
    quick = dict(getattr(study.settings, "quick", {}))
    ranges = quick.pop("axes", {})
    found = []
    for entry in fields(study.settings):
        kind, choices = _kind(hints[entry.name])
        axis = entry.name in study.axes
        default = "every" if axis and choices else written(getattr(settings, entry.name))
        small = ", ".join(map(str, ranges.get(entry.name, ()))) if axis else ""
        if not small and entry.name in quick:
            small = written(quick[entry.name])
        found.append(Field(entry.name, kind, default, small if small != default else "", choices, axis))
    return sorted(found, key=lambda entry: not entry.axis)


def _kind(hint: Any) -> tuple[str, tuple[str, ...]]:
    options = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return "choice", tuple(map(str, options))
    if hint is bool:
        return "choice", ("yes", "no")
    if typing.get_origin(hint) in (Union, types.UnionType):
        # A number or none: text takes both, and the study checks it.
        return "text", ()
    return {int: "whole", float: "number"}.get(hint, "text"), ()


@dataclass(frozen=True)
class Asked:
    """A form as it was sent, found good."""

    profile: str
    seeds: int | None
    settings: dict[str, Any]
    device: str = "cpu"
    again: bool = False


def read(study: Study, sent: Mapping[str, str]) -> Asked:
    """What was asked for; an empty field is one not given. ValueError says what is wrong with it."""
    given = {name: value.strip() for name, value in sent.items() if value.strip()}
    profile = given.pop("profile", "full")
    if profile not in PROFILES:
        raise ValueError(f"{study.name}: profile is {profile!r}; it is one of {', '.join(PROFILES)}.")
    seeds = _seeds(study, given.pop("seeds", None))
    device, again = given.pop("device", "cpu"), given.pop("again", None) is not None
    if device not in devices():
        raise ValueError(f"{study.name}: device is {device!r}; there is {', '.join(devices())} here.")
    unknown = [name for name in given if not name.startswith("set.")]
    if unknown:
        raise ValueError(f"{study.name}: there is no option {unknown[0]!r}.")
    settings = study.checked({name.removeprefix("set."): value for name, value in given.items()})
    for name, value in settings.items():
        if isinstance(value, str):
            _no_file(f"{study.name}: {name}", value)
    if not study.variants(profile, settings):
        raise ValueError(f"{study.name}: no variant fits these settings.")
    return Asked(profile, seeds, settings, device, again)


def devices() -> tuple[str, ...]:
    """What a run can compute on here."""
    import torch

    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


def _seeds(study: Study, given: str | None) -> int | None:
    if given is None:
        return None
    if not given.isdecimal() or not 1 <= int(given) <= MOST_SEEDS:
        raise ValueError(f"{study.name}: seeds is {given!r}; it takes a whole number from 1 to {MOST_SEEDS}.")
    return int(given)


def number(given: Mapping[str, str], name: str, kind: type, default: Any) -> Any:
    """A field as a number; what it is unless given."""
    text = given.get(name, "").strip()
    try:
        return kind(text) if text else default
    except ValueError:
        raise ValueError(f"{name} is {text!r}; it takes a{' whole' * (kind is int)} number.") from None


def _no_file(what: str, value: str) -> None:
    """Some settings name a file in a terminal (a text to train on). A page reads no files by name."""
    if set("/\\\0") & set(value) or value.startswith(("~", ".")) or Path(value).exists():
        raise ValueError(
            f"{what} is {value!r}, a file; the page reads none. Name a data set, or use the terminal."
        )
