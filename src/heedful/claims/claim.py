"""A claim: what a text states, a function that measures it, and the verdict that follows.

@claim("D1.8", "CSC413 2024, assignment 4", "Relative attention can be a convolution, w = (2, 0, 1).")
def convolution_by_attention(draw, *, table=log_table):
    x = draw.normal(50, 1)
    ...
    yield same("attention against convolution", out, expected)

The function is called once a seed and yields findings (`evidence.py`); it does not know the verdict. What it
measures are its keyword arguments, so that a test can put something broken in their place.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..phrases import suggestion
from .draw import Draw
from .evidence import Evidence, Finding, put_together

VERDICTS = ("holds", "holds, corrected", "fails", "undecided", "not measured")


@dataclass(frozen=True)
class Claim:
    """A registered claim; `claims.claims()` lists them."""

    id: str
    document: str
    statement: str
    stated: str
    corrected: str | None
    measure: Callable[..., Iterable[Finding]]
    once: bool = False
    draw: Callable | None = None

    @property
    def code(self) -> str:
        """The source of the function that measures."""
        try:
            return inspect.getsource(self.measure)
        except (OSError, TypeError):
            return "(no source)"

    @property
    def place(self) -> tuple:
        """Sorts A1.2 before A1.10."""
        return tuple(int(part) if part.isdigit() else part for part in re.findall(r"\d+|\D+", self.id))


# What `heedful claims --json` tells of each; seeds and times stand beside them in runs/claims/verdicts.json.
FIELDS = ("id", "document", "statement", "stated", "verdict", "evidence", "corrected")


@dataclass(frozen=True)
class Verdict:
    """What came out; `print(verdict)` explains."""

    id: str
    document: str
    statement: str
    stated: str
    verdict: str  # one of VERDICTS
    evidence: list[Evidence]
    corrected: str | None = None
    seeds: list[int] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether the statement holds, corrected or not."""
        return self.verdict.startswith("holds")

    @property
    def line(self) -> str:
        """The evidence that decided, in one line."""
        judged = [e for e in self.evidence if e.role in ("stated", "detail")]
        decisive = [e for e in judged if e.holds is not True] or judged or self.evidence
        return str(decisive[0]) if decisive else ""

    def figure(self):
        """What was measured as a matplotlib figure, or None where numbers say it all."""
        from .figures import draw

        return draw(self)

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "document": self.document,
            "statement": self.statement,
            "stated": self.stated,
            "verdict": self.verdict,
            "evidence": [each.to_dict() for each in self.evidence],
            "corrected": self.corrected,
            "seeds": list(self.seeds),
            "seconds": round(self.seconds, 3),
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Verdict:
        return cls(**{**found, "evidence": [Evidence.from_dict(each) for each in found["evidence"]]})

    def __str__(self) -> str:
        lines = [f"{self.id} ({self.document})", self.statement]
        lines += [f"stated: {self.stated}"] if self.stated else []
        lines += [f"verdict: {self.verdict}"]
        marks = {True: "✓", False: "✗", None: "·"}
        for each in self.evidence:
            if each.kind != "curve":
                role = {"detail": " [detail]", "corrected": " [corrected]"}.get(each.role, "")
                lines.append(f"  {marks[each.holds]} {each}{role}")
        return "\n".join(lines + ([f"corrected: {self.corrected}"] if self.corrected else []))


_CLAIMS: dict[str, Claim] = {}


def claim(
    id: str,
    document: str,
    statement: str,
    *,
    stated: str = "",
    corrected: str | None = None,
    once: bool = False,
    draw: Callable | None = None,
) -> Callable:
    """Register a function that measures as a claim.

    Args:
        id, document, statement: its name, the text it is from, what that states, in your own words.
        stated: the value or formula as the text has it.
        corrected: what to say where the statement fails and findings of role "corrected" hold.
        once: it does not depend on the seed, as one that reads the result of a study.
        draw: makes a figure of the verdict; without it curves and fits are drawn.
    """
    if not re.fullmatch(r"[A-Za-z][\w.–-]*", id):
        raise ValueError(f"claim({id!r}): an id is a letter, then letters, digits and dots, as in A1.4.")

    def register(measure: Callable) -> Callable:
        _CLAIMS[id] = Claim(id, document, statement, stated, corrected, measure, once, draw)
        return measure

    return register


def claims(document: str | None = None) -> dict[str, Claim]:
    """Every claim there is, by id; or those of a document, by its letter or a part of its name."""
    package = importlib.import_module(__package__ or "heedful.claims")
    for module in pkgutil.iter_modules(package.__path__):
        if re.match(r"[a-e]\d?_", module.name):
            importlib.import_module(f"{package.__name__}.{module.name}")
    found = dict(sorted(_CLAIMS.items(), key=lambda pair: pair[1].place))
    if document is None:
        return found
    chosen = {
        id: each
        for id, each in found.items()
        if re.match(r"[A-Za-z]+", id)[0] == document or (len(document) > 1 and document in each.document)  # type: ignore[index]
    }
    if not chosen:
        letters = sorted({re.match(r"[A-Za-z]+", id)[0] for id in found})  # type: ignore[index]
        raise ValueError(f"there is no document {document!r}; there are {', '.join(letters)}.")
    return chosen


def find(id: str | Claim) -> Claim:
    """The claim of that id, in capitals or not."""
    if isinstance(id, Claim):
        return id
    known = claims()
    named = id if id in known else next((each for each in known if each.lower() == id.lower()), None)
    if named is None:
        parts: dict[str, list[str]] = {}
        for each in known:
            parts.setdefault(each.partition(".")[0], []).append(each)
        part = id.partition(".")[0].upper()
        there = (
            f"{part} has {', '.join(parts[part])}" if part in parts else f"ids begin with {', '.join(parts)}"
        )
        raise ValueError(f"there is no claim {id!r}{suggestion(id, known)}. {there[0].upper()}{there[1:]}.")
    return known[named]


_LOADED: dict[tuple[Path, int], list[str]] = {}  # by file and when it was changed last


def load_module(path: str | Path) -> list[str]:
    """Run a file that registers claims of its own; their ids. Unless it has changed, it is run once."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; --module takes a Python file that uses @claim.")
    key = path.resolve(), path.stat().st_mtime_ns
    if key in _LOADED and set(_LOADED[key]) <= set(_CLAIMS):
        return _LOADED[key]
    before = claims()  # the file may ask for ours, which are not its own
    spec = importlib.util.spec_from_file_location(f"heedful_claims_of_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    found = [id for id, each in _CLAIMS.items() if before.get(id) is not each]
    if not found:
        raise ValueError(f"{path} registers no claim; decorate a function with heedful.claims.claim.")
    _LOADED[key] = found
    return found


def check(
    id: str | Claim,
    *,
    seeds: int | Sequence[int] = 3,
    runs: str | Path = "runs",
    subjects: Mapping[str, Any] | None = None,
) -> Verdict:
    """Measure a claim at so many seeds (0, 1, …, or those given) and judge it.

    `runs` is where results of studies lie. `subjects` stand in for what is measured: break one, and see the
    verdict change.

    >>> print(check("A2.3", seeds=1).verdict)
    holds, corrected
    """
    chosen = find(id)
    numbers = list(range(seeds)) if isinstance(seeds, int) else [int(seed) for seed in seeds]
    if not numbers:
        raise ValueError(f"check({chosen.id!r}): seeds is {seeds}; it takes 1 or more, or a list of seeds.")
    if chosen.once:
        numbers = numbers[:1]
    start, findings = time.perf_counter(), []
    with torch.random.fork_rng(devices=[]):
        for seed in numbers:
            torch.manual_seed(seed)
            draw = Draw(seed, Path(runs), first=seed == numbers[0])
            findings += list(chosen.measure(draw, **(subjects or {})))
    named: dict[tuple[str, str, str], list[Finding]] = {}
    for each in findings:
        named.setdefault((each.name, each.kind, each.role), []).append(each)
    evidence = [put_together(group) for group in named.values()]
    words, corrected = judge(evidence, chosen.corrected)
    about = (chosen.id, chosen.document, chosen.statement, chosen.stated)
    return Verdict(*about, words, evidence, corrected, numbers, time.perf_counter() - start)


def judge(evidence: Sequence[Evidence], corrected: str | None) -> tuple[str, str | None]:
    """The verdict, and the corrected statement where it is needed and has evidence of its own.

    holds: all that is stated does. holds, corrected: the statement does, a detail does not, and what we say
    instead does. fails: the statement does not, or neither the detail nor what we say instead does.
    """

    def outcome(role: str) -> bool | None:
        found = [each.holds for each in evidence if each.role == role]
        return False if False in found else None if None in found else True

    if not any(each.role == "stated" for each in evidence):
        return "undecided", None
    stated, detail = outcome("stated"), outcome("detail")
    backed = any(each.role == "corrected" for each in evidence) and outcome("corrected") is True
    instead = corrected if backed else None
    if stated is False:
        return "fails", instead
    if stated is None:
        return "undecided", None
    if detail is True:
        return "holds", None
    if detail is None:
        return "undecided", None
    return ("holds, corrected", instead) if backed else ("fails", None)
