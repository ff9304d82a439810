"""What goes in: batches that repeat or are sorted, shapes that do not fit, values that are not finite."""

from __future__ import annotations

import math
from collections import Counter

from ..findings import finding
from .common import rule


@rule()
def not_finite(facts):
    bad = facts.bad_step
    if bad is None or (bad == 0 and facts.steps == 0 and not facts.losses):
        return
    values = [value for _, value in facts.losses]
    share = sum(not math.isfinite(v) for v in values) / len(values)
    if facts.scaler and share < 0.2:
        return
    where = facts.bad_module
    said = {
        "": "where it began was not seen",
        "weight": f"the weights of {where} overflowed first",
        "input": "the input is not finite",
        "loss": "the model's output is finite, the loss is not",
        "size": "the model's output is finite, and too large for the loss",
    }.get(facts.bad_kind, f"{where} is the first module to put out something not finite")
    cause = {
        "": "A division by zero, a logarithm or root of zero, an overflow, or a step far too large.",
        "weight": "A step far too large: lower the learning rate, or clip gradients.",
        "size": "A step far too large: lower the learning rate, or scale the data.",
        "input": "The data holds nan or inf.",
        "loss": "The loss takes a logarithm or a root of zero, or divides by zero.",
    }.get(
        facts.bad_kind, "A division by zero, a logarithm or root of zero, or an overflow inside this module."
    )
    yield finding(
        "non-finite", float(bad), f"the loss of step {bad} is not finite; {said}", where=where, cause=cause
    )


@rule()
def same_batch(facts):
    prints = facts.fingerprints
    if len(prints) < 5 or len(set(prints)) > 1:
        return
    rows = facts.held_rows
    for loader in facts.loaders.values():
        if loader["batches"] > 1 and loader["starts"] >= 0.5 * facts.steps:
            rows = max(rows, loader["rows"])
    share = facts.rows / rows if rows else 1.0
    facts.measured["same-batch-every-step"] = share
    if rows >= 4 * facts.rows:
        yield finding(
            "same-batch-every-step",
            share,
            f"the same {facts.rows} samples in every step looked at; the data they come from holds {rows:,}",
        )


@rule()
def shuffling(facts):
    batches = [counts for counts in facts.labels if sum(counts.values()) >= 8]
    if len(batches) < 5 or not facts.classes or facts.classes > 1000 or len(set(facts.fingerprints)) <= 1:
        return
    pooled: Counter = sum(batches, Counter())
    if len(pooled) == 1:
        # Of scores put together by hand the first may always be the right one, as in contrastive learning.
        given = any(
            batch.objective is not None and batch.objective.kind == "classes" for batch in facts.batches
        )
        if facts.classes > 1 and len(batches) >= 5 and given:
            yield finding(
                "not-shuffled",
                1.0,
                f"all labels of {len(batches)} batches looked at are of one class, of {facts.classes}",
            )
        return
    n = sum(pooled.values()) / len(batches)
    within = sum(_entropy(counts) * sum(counts.values()) for counts in batches) / sum(pooled.values())
    between = _entropy(pooled) - within - (len(pooled) - 1) / (2 * n)
    share = max(0.0, between / _entropy(pooled))
    facts.measured["not-shuffled"] = share
    if share > 0.5:
        yield finding(
            "not-shuffled",
            share,
            f"{share:.0%} of the labels' entropy lies between batches: most hold few classes",
        )


def _entropy(counts: Counter) -> float:
    total = sum(counts.values())
    return -sum(c / total * math.log(c / total) for c in counts.values() if c)


@rule()
def shapes_of_the_loss(facts):
    if facts.mixed is not None:
        said, classes = facts.mixed
        yield finding("view-mixes-axes", float(classes), said)
    facts.measured["loss-broadcast"] = facts.broadcast or 1.0
    if facts.broadcast is not None and facts.broadcast > 1:
        n = int(facts.broadcast)
        yield finding("loss-broadcast", facts.broadcast, f"every prediction is compared with {n} targets")
    if facts.softmaxes:
        function = max(facts.softmaxes, key=lambda name: len(facts.softmaxes[name]))
        count = len(facts.softmaxes[function])
        facts.measured["double-softmax"] = float(count)
        yield finding(
            "double-softmax",
            float(count),
            f"the loss got the output of a {function} in {count} of {facts.looks or 1} steps looked at",
        )
