"""Inside the model: units that are off, attention that is saturated or uniform, sums that cancel."""

from __future__ import annotations

import math

from ..findings import finding
from .common import median, rule, some


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
    narrow, flat = [], []
    for where, looks in facts.entropies.items():
        place = where.partition(": ")[2] or "an attention"
        early = [sum(heads) / len(heads) for step, heads, _ in looks if step <= 8]
        if early:
            narrow.append((median(early), place))
        flat.append((max(1 - min(heads) for _, heads, _ in looks), place, len(looks)))
    if narrow:
        facts.measured["attention-saturated"] = least = min(narrow)[0]
        if least < 0.1:
            yield finding(
                "attention-saturated",
                least,
                f"attention has {least:.1%} of the entropy of equal weights in the first steps",
                where=some([place for share, place in narrow if share < 0.1]),
            )
    if flat:
        facts.measured["attention-uniform"] = min(flat)[0]
        equal = [(share, place) for share, place, looks in flat if share < 1e-6 and looks >= 3]
        if equal:
            yield finding(
                "attention-uniform",
                min(equal)[0],
                f"all weights were equal in {max(looks for *_, looks in flat)} steps looked at",
                where=some([place for _, place in equal]),
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
