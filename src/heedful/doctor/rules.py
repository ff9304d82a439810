"""From what was seen to what is wrong: one short function a finding, each with a number and a threshold."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable

import torch
from torch import nn

from . import leaks, patches, twins
from .facts import Batch, Calls, Facts, Seen
from .findings import KINDS, Finding, finding
from .report import Report
from .twins import undisturbed

Rule = Callable[[Facts], Iterable[Finding]]
RULES: list[tuple[str, Rule]] = []
DEEP = {"light": 0, "normal": 1, "deep": 2}


def rule(tier: str = "light"):
    """A rule of a tier: "normal" ones experiment on copies, "deep" ones take their time."""

    def register(function: Rule) -> Rule:
        RULES.append((tier, function))
        return function

    return register


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
    found = _fold(found)
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


def _fold(found: list[Finding]) -> list[Finding]:
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


def _stepping(facts: Facts) -> list[Seen]:
    return [seen for seen in facts.optimizers.values() if seen.steps]


def _alone(facts: Facts) -> Seen | None:
    """The optimizer, where there is one: with several, losses of different things are mixed."""
    found = _stepping(facts)
    return found[0] if len(found) == 1 else None


def _first_batch(facts: Facts, whole: bool = False) -> tuple[Calls, nn.Module, Batch] | None:
    """The first recorded batch of a model of which there is a copy as it was at the start.

    `whole` asks that the model holds all that is trained: of parts trained together, one alone says nothing.
    """
    trained = {key for key, slot in facts.slots.items() if slot.norm > 0}
    for batch in facts.batches:
        calls = facts.models.get(id(batch.model))
        if calls is not None and calls.initial is not None and not (whole and trained - calls.parameters):
            return calls, calls.initial, batch
    return None


def _values(facts: Facts) -> list[float]:
    return [value for _, value in facts.losses]


def _median(numbers) -> float:
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2] if ordered else math.nan


# The loop


@rule()
def gradients_not_cleared(facts):
    for seen in _stepping(facts):
        rounds = max(1, seen.judged - 1)
        residual = _median(seen.stale) if seen.stale else 0.0
        facts.measured["gradients-not-cleared"] = max(
            residual, facts.measured.get("gradients-not-cleared", 0.0)
        )
        if len(seen.stale) >= max(2, 0.5 * rounds) and residual > 1e-6:
            yield finding(
                "gradients-not-cleared",
                residual,
                f"{len(seen.stale)} of {seen.judged} steps used a gradient that an earlier step had used "
                f"already; "
                f"it was {residual:.3g} times the new one",
                where=type(seen.optimizer).__name__,
            )


@rule()
def order_of_the_loop(facts):
    for seen in _stepping(facts):
        if seen.closure:
            continue
        for name, count, words in (
            ("zero-grad-before-step", seen.cleared, "had gradients cleared between backward() and step()"),
            ("step-before-backward", seen.early, "came before the backward() of their own forward pass"),
        ):
            share = count / max(1, seen.judged)
            facts.measured[name] = max(share, facts.measured.get(name, 0.0))
            if (count >= 2 and share >= 0.5) or (count == 1 and "inplace" in facts.raised):
                yield finding(
                    name,
                    share,
                    f"{count} of {seen.judged} steps {words}",
                    where=type(seen.optimizer).__name__,
                )
        facts.measured["scheduler-before-optimizer"] = float(seen.schedule_early)
        if seen.schedule_early and seen.steps:
            yield finding(
                "scheduler-before-optimizer",
                seen.schedule_early,
                f"{seen.schedule_early} scheduler steps came before the optimizer step they belong to",
            )
        if seen.clips_late >= 2 and seen.clips_late >= 0.9 * (seen.clips - 1):
            yield finding(
                "clip-after-step",
                seen.clips_late / seen.clips,
                f"{seen.clips_late} of {seen.clips} clippings came after the step",
            )
        facts.measured["clip-after-step"] = seen.clips_late / max(1, seen.clips)
        factors = [factor for factor in seen.clips_scaled if factor != 1]
        facts.measured["clip-of-scaled-gradients"] = _median(factors) if factors else 1.0
        if len(factors) >= 2:
            yield finding(
                "clip-of-scaled-gradients",
                _median(factors),
                f"{len(factors)} of {seen.clips} clippings saw gradients multiplied by {_median(factors):g}",
            )


@rule()
def accumulation(facts):
    for seen in _stepping(facts):
        if not seen.groups:
            continue
        pieces = Counter(count for count, _ in seen.groups).most_common(1)[0][0]
        ratio = _median([ratio for count, ratio in seen.groups if count == pieces])
        facts.measured["accumulation-not-divided"] = facts.measured["accumulation-divided-twice"] = ratio
        adaptive = any(
            word in type(seen.optimizer).__name__ for word in ("Adam", "Lion", "RMSprop", "Adagrad", "NAdam")
        )
        severity = "warning" if adaptive and not seen.clips else "serious"
        said = f"{pieces} backward passes a step give {ratio:.3g} times the gradient of one batch of all"
        if ratio > 1.5:
            yield finding("accumulation-not-divided", ratio, said, severity=severity)
        elif ratio < 1 / 1.5:
            yield finding("accumulation-divided-twice", ratio, said, severity=severity)


@rule("normal")
def batchnorm_under_accumulation(facts):
    for seen in _stepping(facts):
        if not seen.groups:
            continue
        pieces = Counter(count for count, _ in seen.groups).most_common(1)[0][0]
        chosen = _first_batch(facts)
        if chosen is None:
            continue
        calls, initial, _ = chosen
        batches = [b for b in facts.batches if b.model is calls.model and b.step == 0][:pieces]
        if len(batches) < 2:
            batches = [b for b in facts.batches if b.model is calls.model][:pieces]
        found = twins.pieces_angle(initial, batches)
        if found is None:
            continue
        angle, size = found
        facts.measured["batchnorm-under-accumulation"] = angle
        norms = [n for n, m in initial.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        if norms and angle > 10:
            yield finding(
                "batchnorm-under-accumulation",
                angle,
                f"{len(batches)} pieces give a gradient {angle:.0f}° off and {size:.2f} times as large as "
                f"one batch of all",
                where=norms[0] + (f" and {len(norms) - 1} more" if len(norms) > 1 else ""),
                severity="serious" if angle > 30 else "warning",
            )


@rule()
def missing_parameters(facts):
    stepping = _stepping(facts)
    if not stepping or facts.looks < 3:
        return
    held = set(facts.slots)
    missing = {key: p for key, p in facts.reached.items() if key not in held and p.requires_grad}
    for module in facts.called.values():  # layers kept in plain lists have names nowhere
        for name, parameter in module.named_parameters(recurse=False):
            facts.names.setdefault(id(parameter), f"{type(module).__name__}.{name} (in no model)")
    total = sum(p.numel() for p in facts.reached.values())
    share = sum(p.numel() for p in missing.values()) / max(1, total)
    facts.measured["parameters-missing-from-optimizer"] = share
    if missing:
        names = [facts.name(p) for p in missing.values()]
        yield finding(
            "parameters-missing-from-optimizer",
            share,
            f"{len(missing)} of {len(facts.reached)} parameters with a gradient are in no optimizer",
            where=_some(names),
        )


@rule()
def gradients_that_never_arrive(facts):
    if not _stepping(facts) or facts.looks < 3 or not facts.reached:
        return
    ran = {id(p) for module in facts.called.values() for p in module.parameters(recurse=False)}
    ran |= {
        key
        for calls in facts.models.values()
        for p in calls.model.parameters(recurse=False)
        for key in [id(p)]
    }
    compiled = any("compiled" in text for text in facts.notes)
    cut, unused, still = [], [], []
    largest = max((slot.norm for slot in facts.slots.values()), default=0.0)
    for key, slot in facts.slots.items():
        if not slot.parameter.requires_grad or key not in facts.names:
            continue
        if slot.norm == 0 and key not in facts.reached:
            (cut if key in ran else unused).append(slot)
        elif slot.norm > 1e-5 * largest and slot.looks >= 3 and slot.change == 0:
            still.append(slot)  # a bias before a norm has rounding for a gradient, and may stay
    if cut and not compiled:
        yield finding(
            "gradient-never-arrives",
            0.0,
            f"{len(cut)} parameters take part in the forward pass and got no gradient in {facts.looks} "
            f"steps looked at",
            where=_some([facts.name(slot.parameter) for slot in cut]),
        )
    elif unused and not compiled:
        yield finding(
            "gradient-never-arrives",
            0.0,
            f"{len(unused)} parameters of the optimizer belong to modules that never ran",
            severity="note",
            where=_some([facts.name(slot.parameter) for slot in unused]),
            cause="Their modules are not used in the forward pass.",
        )
    if still:
        yield finding(
            "parameter-never-updated",
            0.0,
            f"{len(still)} parameters have gradients and did not change in any step looked at",
            where=_some([facts.name(slot.parameter) for slot in still]),
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@rule()
def modes(facts):
    several = len(_stepping(facts)) > 1
    for calls in facts.models.values():
        if calls.training_steps:
            share = calls.training_in_eval / calls.training_steps
            facts.measured["eval-mode-in-training"] = share
            if calls.training_in_eval >= 2:
                yield finding(
                    "eval-mode-in-training",
                    share,
                    f"{calls.training_in_eval} of {calls.training_steps} training steps ran in evaluation "
                    f"mode",
                    where=type(calls.model).__name__,
                )
        often = calls.passes_in_train > 0.2 * facts.steps and calls.in_a_row < 2
        if calls.training_steps and calls.passes and not several and not often:
            share = calls.passes_in_train / calls.passes
            facts.measured["train-mode-in-evaluation"] = share
            if share >= 0.5:
                yield finding(
                    "train-mode-in-evaluation",
                    share,
                    f"{calls.passes_in_train} of {calls.passes} forward passes without gradients ran in "
                    f"training mode",
                    where=type(calls.model).__name__,
                )


@rule()
def graphs_kept(facts):
    if len(facts.held) >= 5:
        alive, made = facts.held[-1]
        share = alive / max(1, made)
        facts.measured["graph-kept-alive"] = share
        if made >= 4 and alive >= 4 and share >= 0.8:
            yield finding(
                "graph-kept-alive", share, f"{alive} of {made} earlier graphs looked at are still held"
            )
            return
    sizes = facts.sizes
    if len(sizes) >= 5 and all(b >= a for a, b in itertools.pairwise(sizes)) and sizes[-1] > 2 * sizes[0]:
        growing = sum(b > a for a, b in itertools.pairwise(sizes))
        if growing >= 0.8 * (len(sizes) - 1):
            yield finding(
                "graph-kept-alive",
                sizes[-1] / sizes[0],
                f"the graph behind the loss grew from {sizes[0]:,} to {sizes[-1]:,} nodes",
                cause="A state is carried from step to step with its history.",
            )


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
        "weight": f"the weights of {where} overflowed first",
        "input": "the input is not finite",
        "loss": "the model's output is finite, the loss is not",
    }.get(facts.bad_kind, f"{where} is the first module to put out something not finite")
    cause = {
        "weight": "A step far too large: lower the learning rate, or clip gradients.",
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
        if facts.classes > 1 and len(batches) >= 5:
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
        before, classes = facts.mixed
        yield finding(
            "view-mixes-axes",
            float(classes),
            f"{tuple(before)} was viewed as (…, {classes}); axis 1 holds the {classes} classes",
        )
    facts.measured["loss-broadcast"] = facts.broadcast or 1.0
    if facts.broadcast is not None and facts.broadcast > 1:
        n = int(facts.broadcast)
        yield finding("loss-broadcast", facts.broadcast, f"every prediction is compared with {n} targets")
    if facts.softmaxes:
        function, count = facts.softmaxes.most_common(1)[0]
        facts.measured["double-softmax"] = float(count)
        yield finding(
            "double-softmax",
            float(count),
            f"the loss got the output of a {function} in {count} of {facts.looks or 1} steps looked at",
        )


# The signal


@rule("normal")
def gradients_along_depth(facts):
    chosen = _first_batch(facts)
    if chosen is None:
        return
    calls, initial, batch = chosen
    for found in depth(facts, initial, batch):
        found.proof += _trained_with_skips(facts, calls, initial, batch)
        yield found


def _trained_with_skips(facts: Facts, calls: Calls, initial: nn.Module, batch: Batch, steps: int = 40) -> str:
    """A few steps on the recorded batches, of the model as it was and of its twin with skips."""
    seen, batches = (
        _alone(facts),
        [b for b in facts.batches if b.model is calls.model and b.objective is not None],
    )
    twin = twins.with_skips(initial, batch)
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
    if 1e-3 < ratio < 1e2 or 10**-1.5 < seen.body < 10:
        return
    facts.steep = True
    name = "vanishing-gradients" if ratio < 1 else "exploding-gradients"
    healed = []
    anew = twins.again(initial)
    first = twins.flow(anew, batch).ratio if anew is not None else math.nan
    skips = twins.with_skips(initial, batch)
    second = twins.flow(skips, batch).ratio if skips is not None else math.nan
    both = math.nan
    if anew is not None and not (_sound(first) or _sound(second)):
        twin = twins.with_skips(anew, batch)
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
        cause=cause,
        proof=f"the same model and batch: {ratio:.2g}; {'; '.join(healed)} (change {fix})" if healed else "",
    )


def _steep(facts: Facts) -> bool:
    """Gradients vanish or explode: what else goes wrong follows from it, and is not asked."""
    return facts.steep


def _sound(ratio: float) -> bool:
    return math.isfinite(ratio) and 1e-2 < ratio < 70


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
def updates(facts):
    for seen in _stepping(facts):
        late = seen.changes[2:]
        if len(late) < 3:
            continue
        ratio = _median(late)
        facts.measured["update-too-large"] = max(ratio, facts.measured.get("update-too-large", 0.0))
        values = _values(facts)
        learns = values and _median(values[-max(3, len(values) // 4) :]) < 0.9 * values[0]
        if ratio > 0.3 and not learns:
            yield finding(
                "update-too-large", ratio, f"a step changes weights by {ratio:.2g} of their size (median)"
            )


@rule("normal")
def learning_rate(facts):
    seen, values = _alone(facts), _values(facts)
    if seen is None or len(values) < 10 or seen.closure or not values[0] > 0:
        return
    late = _median(values[-max(3, len(values) // 4) :])
    ratio = late / values[0] if math.isfinite(late) else math.inf
    facts.measured["learning-rate-too-high"] = ratio
    facts.measured["learning-rate-too-low"] = 1 - ratio
    high = ratio > 1.2 or facts.bad_kind == "weight"
    low = not high and late > 0.95 * _median(values[:3])
    chosen = _first_batch(facts, whole=True)
    if not (high or low) or chosen is None or _steep(facts):
        return
    calls, initial, _ = chosen
    batches = [b for b in facts.batches if b.model is calls.model and b.objective is not None]
    if not batches:
        return
    steps = max(10, min(40, len(values)))

    def trained(factor: float) -> tuple[float, float]:
        return twins.replay(initial, calls.model, seen.optimizer, batches, steps, factor)

    first, end = trained(1.0)
    if not first > 0 or math.isnan(end):
        return
    rate = float(seen.optimizer.param_groups[0]["lr"])
    gained = 1 - end / first
    if end <= 1.1 * first if high else gained >= 0.01:
        return
    factor, best = min(
        ((factor, trained(factor)[1]) for factor in ((0.1, 0.01, 0.001) if high else (1e2, 1e4, 1e6))),
        key=lambda entry: entry[1] if math.isfinite(entry[1]) else math.inf,
    )
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
    if not facts.losses or _alone(facts) is None:
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
    seen, values = _alone(facts), _values(facts)
    chosen = _first_batch(facts, whole=True)
    if seen is None or chosen is None or len(values) < 10:
        return
    late = _median(values[-max(3, len(values) // 4) :])
    _, initial, batch = chosen
    guess = twins.constant_guess(batch)
    if guess is None or not math.isfinite(late) or late < 0.85 * guess:
        return  # it has learned more than a constant: no need to ask
    yield from fits(facts, initial, batch)


def fits(facts: Facts, initial: nn.Module, batch: Batch) -> Iterable[Finding]:
    """Whether a copy can learn one batch by heart."""
    if _steep(facts):
        return
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
def attention(facts):
    for where, looks in facts.entropies.items():
        early = [sum(heads) / len(heads) for step, heads, _ in looks if step <= 8]
        if early:
            facts.measured["attention-saturated"] = min(
                _median(early), facts.measured.get("attention-saturated", 1.0)
            )
        if early and _median(early) < 0.1:
            yield finding(
                "attention-saturated",
                _median(early),
                f"attention has {_median(early):.1%} of the entropy of equal weights in the first steps",
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


@rule()
def spikes(facts):
    values = _values(facts)
    if _alone(facts) is None or len(values) < 12:
        return
    worst = (0.0, 0)
    for k in range(10, len(values)):
        before = values[k - 10 : k]
        usual = _median(before)
        if usual > 0 and math.isfinite(values[k]) and values[k] > max(*values[:3], 3 * max(before)):
            worst = max(worst, (values[k] / usual, k))
    facts.measured["loss-spike"] = worst[0]
    if worst[0] > 10:
        yield finding(
            "loss-spike",
            worst[0],
            f"the loss of step {facts.losses[worst[1]][0]} is {worst[0]:.0f} times the median of the ten "
            f"before",
        )


# Leaks


@rule("normal")
def causal(facts):
    if not facts.shifted:
        return
    for batch in facts.batches:
        calls = facts.models.get(id(batch.model))
        if calls is None or calls.initial is None or len(batch.arguments) != 1 or batch.options:
            continue
        x = batch.arguments[0][:2]
        facts.measured["causal-leak"] = 0.0
        found = leaks.check_causal(calls.initial, x)
        if found is not None:
            facts.measured["causal-leak"] = found.measured or 0.0
            yield found
        return


@rule("normal")
def batches_apart(facts):
    chosen = _first_batch(facts)
    if chosen is None or len(set(facts.fingerprints)) < 2:
        return  # one batch for all steps: the axis may be nodes, which do hear each other
    _, initial, batch = chosen
    if len(batch.arguments) != 1 or batch.options or not isinstance(batch.arguments[0], torch.Tensor):
        return
    x = batch.arguments[0]
    if x.dim() < 2 or len(x) < 2:
        return
    try:
        found = leaks.check_batch_independence(initial, x[:8] if x.dim() > 1 else x)
    except ValueError:
        return
    facts.measured["batch-leak"] = 0.0 if found is None else float(found.measured or 0.0)
    if found is None:
        return
    if x.dim() > 2 and x.shape[1] > 1:
        try:
            if leaks.check_batch_independence(initial, x[:, :4], axis=1) is None:
                return  # the batch is the second axis
        except ValueError:
            pass
    yield found


@rule()
def overlap(facts):
    rows = [row for batch in facts.evaluated for row in batch]
    if len(rows) < 16 or not facts.trained:
        return
    distinct = set(rows)
    if len({row for batch in facts.evaluated for row in batch}) < 0.9 * sum(
        len(batch) for batch in {tuple(batch) for batch in facts.evaluated}
    ):
        return  # samples repeat by themselves
    both = distinct & facts.trained
    share = len(both) / len(distinct)
    if share < 0.01 or len(both) < 4:
        facts.measured["train-test-overlap"] = share
        return
    if len(both) > 0.9 * len(facts.trained):
        return  # the whole training set is evaluated, which is a training score
    facts.measured["train-test-overlap"] = share
    yield finding(
        "train-test-overlap",
        share,
        f"{len(both)} of {len(distinct)} evaluation samples were training samples, bit for bit",
        severity="warning" if share == 1 else "serious",
    )
