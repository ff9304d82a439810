"""How the loss moves: rates too high or low, a first loss too high, spikes, a batch not learned by heart."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from .. import twins
from ..facts import Batch, Facts
from ..findings import Finding, finding
from .common import alone, first_batch, losses, median, rule, stepping


@rule()
def updates(facts):
    for seen in stepping(facts):
        changes = seen.changes[2:]
        if len(changes) < 3 or seen.closure:
            continue
        ratio = median(changes)
        facts.measured["update-too-large"] = max(ratio, facts.measured.get("update-too-large", 0.0))
        values = losses(facts)
        late = median(values[-max(3, len(values) // 4) :]) if values else math.nan
        learns = bool(values) and late < 0.9 * values[0]
        worse = bool(values) and late > 1.5 * values[0]
        if ratio > (0.1 if worse else 0.3) and not learns:
            yield finding(
                "update-too-large",
                ratio,
                f"a step changes weights by {ratio:.2g} of their size (median)",
                subject=seen,
            )


@rule("normal")
def learning_rate(facts):
    seen, values = alone(facts), losses(facts)
    if seen is None or len(values) < 10 or seen.closure or not values[0] > 0:
        return
    late = median(values[-max(3, len(values) // 4) :])
    ratio = late / values[0] if math.isfinite(late) else math.inf
    facts.measured["learning-rate-too-high"] = ratio
    facts.measured["learning-rate-too-low"] = 1 - ratio
    high = ratio > 1.2 or facts.bad_kind == "weight"
    low = not high and late > 0.95 * min(values[0], median(values[:3]))
    chosen = first_batch(facts, whole=True)
    if not (high or low) or chosen is None or facts.steep:
        return
    calls, initial, _ = chosen
    batches = [b for b in facts.batches if b.model is calls.model and b.objective is not None]
    if not batches:
        return
    steps = max(10, min(40, len(values)))

    # A run that was cut short may still be warming up; of one that came to its end, what it used counts.
    used = seen.rates if facts.whole else None

    def trained(factor: float) -> tuple[float, float]:
        return twins.replay(initial, calls.model, seen.optimizer, batches, steps, factor, used)

    first, end = trained(1.0)
    if not first > 0 or math.isnan(end):
        return
    rate = (used or {}).get(0, float(seen.optimizer.param_groups[0]["lr"]))
    gained = 1 - end / first
    if end <= 1.1 * first if high else gained >= 0.01:
        return
    factors = (0.1, 0.01, 0.001) if high else (1e2, 1e3, 1e4, 1e5, 1e6)  # of SGD but a tenth of them trains
    if low and max(seen.changes[:3], default=0.0) > 0.1:
        factors = (0.1, 0.01, 0.001)  # steps are large and lead nowhere
    factor, best = min(
        ((factor, trained(factor)[1]) for factor in factors),
        key=lambda entry: entry[1] if math.isfinite(entry[1]) else math.inf,
    )
    if low and factor < 1:
        low, high = False, 1 - best / first > 0.1
    proof = (
        f"the same {len(batches)} batches, {steps} steps from the start: mean loss {first:.3g} → {end:.3g} "
    )
    proof += f"at this rate, {best:.3g} at {factor:g} times it"
    if high and best < first and best < 0.9 * end:
        yield finding(
            "learning-rate-too-high",
            ratio,
            f"the loss went from {values[0]:.3g} to {late:.3g} at a rate of {rate:g}",
            proof=proof,
            where=f"lr={rate:g}",
        )
    elif low and 1 - best / first > 0.1:
        facts.measured["learning-rate-too-low"] = gained
        yield finding(
            "learning-rate-too-low",
            gained,
            f"{steps} steps take {max(0.0, gained):.2%} off the loss of the batches they are taken on, "
            f"at a rate of {rate:g}",
            proof=proof,
            where=f"lr={rate:g}",
        )


@rule()
def loss_at_the_start(facts):
    if not facts.losses or alone(facts) is None:
        return
    first = facts.losses[0][1]
    batch = next((b for b in facts.batches if b.step == 0 and b.objective is not None), None)
    if batch is None or batch.objective is None or not math.isfinite(first):
        return
    aim, first = batch.objective, batch.loss
    if aim.reduction != "mean":
        return
    if aim.kind == "classes" and aim.classes and aim.classes > 1:
        ratio, limit = first / math.log(aim.classes), 3.0
        guess = f"ln({aim.classes}) = {math.log(aim.classes):.3g}"
    elif aim.kind == "squares":
        same = [b.objective.target for b in facts.batches if b.objective and b.objective.kind == "squares"]
        targets = torch.cat([target.flatten().double() for target in same])
        variance = float(targets.var(correction=0))
        if not variance:
            return
        ratio, limit, guess = first / variance, 30.0, f"the targets' variance, {variance:.3g}"
    else:
        return
    facts.measured["loss-at-init"] = ratio
    if ratio > limit:
        yield finding(
            "loss-at-init", ratio, f"the first loss is {first:.3g}; a guess that knows nothing has {guess}"
        )


@rule("normal")
def one_batch(facts):
    seen, values = alone(facts), losses(facts)
    chosen = first_batch(facts, whole=True)
    if seen is None or chosen is None or len(values) < 10:
        return
    late = median(values[-max(3, len(values) // 4) :])
    _, initial, batch = chosen
    guess = twins.constant_guess(batch)
    if guess is None or not math.isfinite(late) or late < 0.85 * guess:
        return  # it has learned more than a constant: no need to ask
    yield from fits(facts, initial, batch)


def fits(facts: Facts, initial: nn.Module, batch: Batch) -> Iterable[Finding]:
    """Whether a copy can learn one batch by heart."""
    if facts.steep or facts.measured.get("dead-units", 0.0) > 0.9:
        return  # known why
    guess = twins.constant_guess(batch)
    if (
        guess is None
        or guess < 1e-6
        or (batch.objective and batch.objective.reduction != "mean")
        or sum(p.numel() for p in initial.parameters()) > 5_000_000
    ):
        return
    first, lowest = twins.overfit(initial, batch)
    ratio = lowest / guess
    facts.measured["cannot-overfit"] = ratio
    # Above the guess and still falling is slow, not stuck.
    if math.isfinite(ratio) and ratio > 0.9 and (ratio < 1.1 or lowest > 0.9 * first):
        yield finding(
            "cannot-overfit",
            ratio,
            f"200 steps of Adam on one batch end at {lowest:.3g}; the best constant guess has {guess:.3g}",
        )


@rule()
def spikes(facts):
    values = losses(facts)
    if alone(facts) is None or len(values) < 12:
        return
    worst = (0.0, 0)
    for k in range(10, len(values)):
        before, value = values[k - 10 : k], values[k]
        usual = median(before)
        if usual > 0 and math.isfinite(value) and value > max(*values[:3], 3 * max(before)):
            logs = [math.log(max(entry, 1e-30) / usual) for entry in before]
            spread = 1.5 * median([abs(entry) for entry in logs])
            if math.log(value / usual) > 4 * spread:  # losses of single samples jump about by themselves
                worst = max(worst, (value / usual, k))
    facts.measured["loss-spike"] = worst[0]
    if worst[0] > 10:
        yield finding(
            "loss-spike",
            worst[0],
            f"the loss of step {facts.losses[worst[1]][0]} is {worst[0]:.0f} times the median of the ten "
            f"before",
        )
