"""Inside the model: units that are off, attention that is saturated or uniform, sums that cancel."""

from __future__ import annotations

import math

from ..findings import finding
from .common import median, rule


@rule()
def dead_units(facts):
    worst = None
    for layer in facts.layers.values():
        if layer.samples < 64:
            continue
        share = 1 - float(layer.alive.float().mean())
        if worst is None or share > worst[0]:
            worst = (share, layer)
    if worst is None:
        return
    facts.measured["dead-units"] = worst[0]
    if worst[0] > 0.5:
        share, layer = worst
        yield finding(
            "dead-units",
            share,
            f"{share:.0%} of the units behind {layer.where.partition(': ')[2] or 'a layer'} were off for all "
            f"{layer.samples} samples looked at",
            severity="serious" if share > 0.9 else "warning",
            where=layer.where.partition(": ")[2],
        )


@rule()
def attention(facts):
    for where, looks in facts.entropies.items():
        early = [sum(heads) / len(heads) for step, heads, _ in looks if step <= 8]
        if early:
            facts.measured["attention-saturated"] = min(
                median(early), facts.measured.get("attention-saturated", 1.0)
            )
        if early and median(early) < 0.1:
            yield finding(
                "attention-saturated",
                median(early),
                f"attention has {median(early):.1%} of the entropy of equal weights in the first steps",
                where=where.partition(": ")[2],
            )
        largest = max(1 - min(heads) for _, heads, _ in looks)
        facts.measured["attention-uniform"] = largest
        if largest < 1e-6 and len(looks) >= 3:
            yield finding(
                "attention-uniform",
                largest,
                f"all weights were equal in {len(looks)} steps looked at",
                where=where.partition(": ")[2],
            )


@rule()
def normalisers(facts):
    for where, (ratio, signs) in facts.normalisers.items():
        facts.measured["normaliser-near-zero"] = min(
            ratio, facts.measured.get("normaliser-near-zero", math.inf)
        )
        if signs or ratio < 1e-3:
            yield finding(
                "normaliser-near-zero",
                ratio,
                f"the smallest normaliser is {ratio:.1e} of the median"
                + (", and some are negative" if signs else ""),
                where=where.partition(": ")[2],
            )
            return
