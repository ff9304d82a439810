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
        judged=facts.steps > 0,
        measured=dict(facts.measured),
        seconds=facts.seconds,
        own=facts.own,
    )


def fold(found: list[Finding]) -> list[Finding]:
    """Findings that another explains are told with it; of a circle of explanations the first told stays."""
    kept = [entry for entry in found if entry.severity != "note"]
    causes: dict[str, Finding] = {}

    def root(entry: Finding) -> Finding:
        return root(causes[entry.name]) if entry.name in causes else entry

    for entry in reversed(found):  # what is told last gives way first
        why = [k for k in kept if k.name != entry.name and entry.name in KINDS[k.name].explains]
        why = [k for k in why if root(k).name != entry.name]
        if why:
            causes[entry.name] = why[0]
    told = [entry for entry in found if entry.name not in causes]
    for entry in found:
        if entry.name in causes:
            root(entry).consequences.append(f"{KINDS[entry.name].title.lower()} ({entry.what})")
    return told
