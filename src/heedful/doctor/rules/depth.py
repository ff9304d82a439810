"""Gradients along depth, and which twin heals them: other initial weights, skips, other activations."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import nn

from .. import twins
from ..facts import Batch, Calls, Facts
from ..findings import Finding, finding
from .common import alone, first_batch, rule


@rule("normal")
def gradients_along_depth(facts):
    chosen = first_batch(facts)
    if chosen is None:
        return
    calls, initial, batch = chosen
    for found in depth(facts, initial, batch):
        found.proof += _trained_with_skips(facts, calls, initial, batch)
        yield found


def _trained_with_skips(facts: Facts, calls: Calls, initial: nn.Module, batch: Batch, steps: int = 40) -> str:
    """A few steps on the recorded batches, of the model as it was and of its twin with skips."""
    seen, batches = (
        alone(facts),
        [b for b in facts.batches if b.model is calls.model and b.objective is not None],
    )
    twin, _ = twins.with_skips(initial, batch)
    if seen is None or seen.closure or not batches or twin is None:
        return ""
    plain, other = (
        twins.replay(model, calls.model, seen.optimizer, batches[:4], steps) for model in (initial, twin)
    )
    return (
        f"; {steps} steps on {len(batches[:4])} batches: loss {plain[0]:.3g} → {plain[1]:.3g} as it is, "
        + (f"{other[0]:.3g} → {other[1]:.3g} with skips")
    )


def depth(facts: Facts, initial: nn.Module, batch: Batch) -> Iterable[Finding]:
    """Gradients of the first against those of the last layers, and which twin heals them."""
    initial.train()
    seen = twins.flow(initial, batch)
    if seen.depth < 8 or not math.isfinite(seen.ratio):
        return
    ratio = seen.ratio
    facts.measured["vanishing-gradients"] = facts.measured["exploding-gradients"] = ratio
    if 1e-3 < ratio < 1e2 or 10**-1.5 < seen.body < 10 or (ratio < 1 and seen.stream > 1e-2):
        return
    facts.steep = True
    name = "vanishing-gradients" if ratio < 1 else "exploding-gradients"
    healed = []
    anew = twins.again(initial)
    first = twins.flow(anew, batch).ratio if anew is not None else math.nan
    skips, places = twins.with_skips(initial, batch)
    second = twins.flow(skips, batch).ratio if skips is not None else math.nan
    both = math.nan
    if anew is not None and not (_sound(first) or _sound(second)):
        twin, _ = twins.with_skips(anew, batch)
        both = twins.flow(twin, batch).ratio if twin is not None else math.nan
    straight = twins.with_relu(initial)
    third = twins.flow(straight, batch).ratio if straight is not None else math.nan
    for what, value in (
        ("initial weights by He's rule", first),
        ("skips around every two layers", second),
        ("both", both),
        ("ReLU for every sigmoid and tanh, and He's rule", third),
    ):
        if math.isfinite(value):
            healed.append(f"with {what} {value:.2g}")
    saturated = facts.saturated or 0.0
    if _sound(first):
        cause = "The initial weights are of the wrong size for this depth."
        fix = "the initial weights"
    elif _sound(second):
        cause = "There is no skip around any of the layers: the gradient goes through all of them."
        fix = "skips"
    elif _sound(third):
        cause = "Each sigmoid or tanh shrinks the gradient, a sigmoid to a quarter at most."
        fix = "the activation"
    else:
        cause = "Depth without skips, and weights of the wrong size."
        fix = "skips and initial weights"
    if saturated > 0.3:
        cause = f"Activations are saturated ({saturated:.0%} of one layer's). " + cause
    yield finding(
        name,
        ratio,
        f"over {seen.depth} layers the gradient changes by a factor of {ratio:.2g} from the last to the "
        f"first",
        where=f"{seen.names[0]} … {seen.names[-1]}",
        subject=places if fix == "skips" else None,
        cause=cause,
        proof=f"the same model and batch: {ratio:.2g}; {'; '.join(healed)} (change {fix})" if healed else "",
    )


def _sound(ratio: float) -> bool:
    return math.isfinite(ratio) and 1e-2 < ratio < 70
