"""From what was seen to what is wrong: one short function a finding, each with a number and a threshold."""

from __future__ import annotations

from .. import patches
from ..copies import undisturbed
from ..facts import Facts
from ..findings import KINDS, Finding
from ..report import Report
from . import activations, batches, depth, leaks, learning, loop, parameters  # noqa: F401  depth before learning
from .common import RULES

DEEP = {"light": 0, "normal": 1, "deep": 2}


def judge(facts: Facts, tier: str = "normal") -> Report:
    """All findings, those explained by others folded into them."""
    found: list[Finding] = []
    with undisturbed(0):
        for needs, function in RULES:
            if DEEP[needs] > DEEP[tier]:
                continue
            try:
                found += function(facts)
            except Exception as error:
                facts.note(f"{function.__name__} could not be judged: {type(error).__name__}: {error}")
    found = fold(found)
    patches.suggest(facts, found)
    order = {"serious": 0, "warning": 1, "note": 2}
    names = list(KINDS)
    found.sort(key=lambda entry: (order[entry.severity], names.index(entry.name)))
    if facts.steps == 0:
        facts.note("no optimizer step was seen")
    return Report(
        findings=found,
        notes=list(facts.notes),
        steps=facts.steps,
        looks=facts.looks,
        losses=[value for _, value in facts.losses],
        raised=facts.raised,
        measured=dict(facts.measured),
        seconds=facts.seconds,
        own=facts.own,
    )


def fold(found: list[Finding]) -> list[Finding]:
    names = {entry.name: entry for entry in found if entry.severity != "note"}
    kept = []
    for entry in found:
        causes = [n for n in names if n != entry.name and entry.name in KINDS[n].explains]
        # Of two that explain each other, the first told stays.
        causes = [
            n
            for n in causes
            if n not in KINDS[entry.name].explains or found.index(names[n]) < found.index(entry)
        ]
        if causes:
            names[causes[0]].consequences.append(f"{KINDS[entry.name].title.lower()} ({entry.what})")
        else:
            kept.append(entry)
    return kept
