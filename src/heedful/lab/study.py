"""A study: a question, its settings as a dataclass, one function that runs a seed, and the published figures.

@study("padding", "Does a convolution know where it is looking?", source="Kayhan & van Gemert, CVPR 2020")
@dataclass
class Padding:
    padding: Literal["valid", "same"] = "valid"
    epochs: int = 50

    axes = ("padding",)                                # what is compared: every value of these settings
    quick = {"epochs": 8}                              # what the quick profile changes
    metrics = {"test": "accuracy on moved images, %"}  # the first one is the answer
    published = {("valid",): {"test": Figure(0.09, std=0.11, runs=10)}}

    def run(self, seed, lab): ...                      # returns {"test": 12.3}; draws nothing, prints nothing
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import itertools
import json
import math
import pkgutil
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, Literal, Union

from ..phrases import suggestion
from .statistics import Figure

PROFILES = ("quick", "full")


@dataclass(frozen=True)
class Range:
    """What a setting's number may be, from `least` to `most`: `Annotated[int, Range(2)]`."""

    least: float
    most: float = math.inf

    def __str__(self) -> str:
        return f"{self.least:g} or more" if self.most == math.inf else f"{self.least:g} to {self.most:g}"


Count = Annotated[int, Range(1)]
Rate = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]


@dataclass(frozen=True)
class Study:
    """A registered study; `lab.studies()` lists them."""

    name: str
    question: str
    source: str
    settings: type
    cost: Mapping[str, str]  # about how long each profile takes on two cores

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(getattr(self.settings, "axes", ()))

    @property
    def metrics(self) -> dict[str, str]:
        return dict(getattr(self.settings, "metrics", {}))

    @property
    def ddof(self) -> int:
        """What the published spreads divide by: 0 for n, 1 for n − 1."""
        return getattr(self.settings, "ddof", 1)

    @property
    def code(self) -> str:
        """A fingerprint of the study's own source: results of other code are not taken for its own."""
        module = inspect.getmodule(self.settings)
        try:
            text = inspect.getsource(module if module and module.__name__ != "__main__" else self.settings)
        except (OSError, TypeError):
            text = f"{self.settings.__qualname__}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def seeds(self, profile: str) -> int:
        """How many a profile takes unless told."""
        return getattr(self.settings, "seeds", {}).get(profile, 3 if profile == "quick" else 10)

    def published(self, variant: Mapping[str, Any]) -> dict[str, Figure]:
        """The figures published for a variant, by metric."""
        table = getattr(self.settings, "published", {})
        return table.get(tuple(variant[axis] for axis in self.axes), {})

    def elsewhere(self, variant: Mapping[str, Any]) -> dict[str, dict[str, Figure]]:
        """Figures that others published for a variant (`also`), by who did, then by metric."""
        key = tuple(variant[axis] for axis in self.axes)
        tables = getattr(self.settings, "also", {})
        return {who: table[key] for who, table in tables.items() if key in table}

    def variants(self, profile: str = "full", given: Mapping[str, Any] | None = None) -> list[Any]:
        """Every combination along the axes, those given held fixed, as settings of a profile."""
        if profile not in PROFILES:
            raise ValueError(f"{self.name}: profile is {profile!r}; it is one of {', '.join(PROFILES)}.")
        given = self.checked(given or {})
        changes = {**getattr(self.settings, profile, {}), **given}
        ranges = dict(changes.pop("axes", {}))
        lines = [
            [given[axis]] if axis in given else list(ranges.get(axis, self._choices(axis)))
            for axis in self.axes
        ]
        found = []
        for values in itertools.product(*lines):
            settings = self.settings(**{**changes, **dict(zip(self.axes, values, strict=True))})
            if getattr(settings, "sensible", True):
                found.append(settings)
        return found

    def _choices(self, axis: str) -> Sequence:
        hint = typing.get_type_hints(self.settings)[axis]
        if typing.get_origin(hint) is Literal:
            return typing.get_args(hint)
        return [_default(self.settings, axis)]

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Settings by name, text turned into what the setting takes; errors name what there is."""
        hints = typing.get_type_hints(self.settings, include_extras=True)
        known = [field.name for field in fields(self.settings)]
        found = {}
        for name, value in given.items():
            if name not in known:
                raise ValueError(
                    f"{self.name} has no setting {name!r}{suggestion(name, known) or '.'} "
                    f"It has {', '.join(known)}."
                )
            found[name] = _read(f"{self.name}: {name}", value, hints[name])
        return found

    def label(self, settings: Any) -> str:
        """A variant in a few words."""
        return " ".join(str(getattr(settings, axis)) for axis in self.axes) or self.name

    def key(self, settings: Any) -> str:
        """One number for one set of settings and one version of the code."""
        text = json.dumps([self.name, self.code, asdict(settings)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


_STUDIES: dict[str, Study] = {}


def study(name: str, question: str, *, source: str, cost: Mapping[str, str] | None = None) -> Callable:
    """Register a dataclass of settings with a `run(seed, lab)` as a study."""

    def register(settings: type) -> type:
        if not is_dataclass(settings):
            raise TypeError(
                f"study({name!r}): {settings.__name__} must be a dataclass; put @dataclass below @study."
            )
        if not callable(getattr(settings, "run", None)):
            raise TypeError(f"study({name!r}): {settings.__name__} has no run(self, seed, lab).")
        for field in fields(settings):
            if field.default is MISSING and field.default_factory is MISSING:
                raise TypeError(f"study({name!r}): setting {field.name!r} has no default.")
        missing = [
            axis for axis in getattr(settings, "axes", ()) if axis not in {f.name for f in fields(settings)}
        ]
        if missing:
            raise TypeError(f"study({name!r}): axes name {', '.join(missing)}, which are no settings.")
        _STUDIES[name] = Study(name, question, source, settings, dict(cost or {}))
        return settings

    return register


def studies() -> dict[str, Study]:
    """Every study there is, by name."""
    import heedful

    try:
        package = importlib.import_module(f"{heedful.__name__}.studies")
    except ModuleNotFoundError:
        return dict(_STUDIES)
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_STUDIES.items()))


def find(name: str | Study) -> Study:
    """The study of that name."""
    if isinstance(name, Study):
        return name
    known = studies()
    if name not in known:
        raise ValueError(
            f"There is no study {name!r}{suggestion(name, known) or '.'} There are {', '.join(known)}."
        )
    return known[name]


def _default(settings: type, name: str):
    return getattr(replace(settings()), name)


def written(value: Any) -> str:
    """A setting as `--set` takes it."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _read(what: str, value: Any, hint: Any) -> Any:
    """Text as the type a setting declares; anything but text is taken as it is, if it is of that type."""
    origin, options = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        if type(None) in options and value in (None, "none", "None"):
            return None
        errors = []
        for option in options:
            if option is not type(None):
                try:
                    return _read(what, value, option)
                except ValueError as error:
                    errors.append(error)
        raise errors[0] if errors else ValueError(f"{what} is {value!r}; it takes nothing.")
    if origin is Annotated:
        number, (kind, *said) = _read(what, value, options[0]), options
        for each in said:
            if isinstance(each, Range) and not each.least <= number <= each.most:
                whole = "whole " * (kind is int)
                raise ValueError(f"{what} is {value!r}; it takes a {whole}number of {each}.")
        return number
    if origin is Literal:
        for option in options:
            if value == option or str(value) == str(option):
                return option
        near = suggestion(str(value), map(str, options))
        shown = [repr(option) if "," in str(option) else str(option) for option in options]
        raise ValueError(f"{what} is {value!r}; it is one of {', '.join(shown)}{near or '.'}")
    if origin in (tuple, list):
        parts = [part.strip() for part in value.split(",")] if isinstance(value, str) else list(value)
        return origin(_read(what, part, options[0]) for part in parts if part != "")
    if hint is bool:
        words = {
            "true": True,
            "yes": True,
            "on": True,
            "1": True,
            "false": False,
            "no": False,
            "off": False,
            "0": False,
        }
        if isinstance(value, bool):
            return value
        if str(value).lower() in words:
            return words[str(value).lower()]
        raise ValueError(f"{what} is {value!r}; it is yes or no.")
    if hint in (int, float):
        try:
            number = hint(value)
            if hint is int and float(value) != number:
                raise ValueError
        except (TypeError, ValueError, OverflowError):
            kind = "a whole number" if hint is int else "a number"
            raise ValueError(f"{what} is {value!r}; it takes {kind}.") from None
        if not math.isfinite(number):
            raise ValueError(f"{what} is {value!r}; it takes a finite number.")
        return number
    return str(value) if hint is str else value
