"""The loop: gradients cleared, accumulated, clipped and used in the right order, and let go of."""

from __future__ import annotations

import itertools

from torch import nn

from .. import twins
from ..findings import finding
from .common import first_batch, median, rule, stepping


@rule()
def gradients_not_cleared(facts):
    for seen in stepping(facts):
        rounds = max(1, seen.judged - 1)
        residual = median(seen.stale) if seen.stale else 0.0
        facts.measured["gradients-not-cleared"] = max(
            residual, facts.measured.get("gradients-not-cleared", 0.0)
        )
        if len(seen.stale) >= max(2, 0.5 * rounds) and residual > 1e-6:
            yield finding(
                "gradients-not-cleared",
                residual,
                f"{len(seen.stale)} of {seen.judged} steps followed used a gradient that an earlier step had "
                f"used already; it was {residual:.3g} times the new one",
                where=type(seen.optimizer).__name__,
                subject=seen,
            )


@rule()
def order_of_the_loop(facts):
    for seen in stepping(facts):
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
                    subject=seen,
                )
        facts.measured["scheduler-before-optimizer"] = float(seen.schedule_early)
        if seen.schedule_early and seen.steps:
            yield finding(
                "scheduler-before-optimizer",
                seen.schedule_early,
                f"{seen.schedule_early} scheduler steps came before the optimizer step they belong to",
                subject=seen,
            )
        for clips, words in (
            (seen.clips_late, "came after the step"),
            (seen.clips_early, "came before backward(), with no gradient there"),
        ):
            share = clips / max(1, seen.clips)
            facts.measured["clip-after-step"] = max(share, facts.measured.get("clip-after-step", 0.0))
            if clips >= 2 and clips >= 0.9 * (seen.clips - 1):
                said = f"{clips} of {seen.clips} clippings {words}"
                yield finding("clip-after-step", share, said, subject=seen)
        factors = [factor for factor in seen.clips_scaled if factor != 1]
        facts.measured["clip-of-scaled-gradients"] = median(factors) if factors else 1.0
        if len(factors) >= 2:
            yield finding(
                "clip-of-scaled-gradients",
                median(factors),
                f"{len(factors)} of {seen.clips} clippings saw gradients multiplied by {median(factors):g}",
                subject=seen,
            )


@rule()
def accumulation(facts):
    for seen in stepping(facts):
        if not seen.groups:
            continue
        pieces = seen.usual_pieces
        ratio = median([ratio for count, ratio in seen.groups if count == pieces])
        facts.measured["accumulation-not-divided"] = facts.measured["accumulation-divided-twice"] = ratio
        adaptive = any(
            word in type(seen.optimizer).__name__ for word in ("Adam", "Lion", "RMSprop", "Adagrad", "NAdam")
        )
        severity = "warning" if adaptive and not seen.clips else "serious"
        said = f"{pieces} backward passes a step give {ratio:.3g} times the gradient of one batch of all"
        if ratio > 1.5:
            yield finding("accumulation-not-divided", ratio, said, severity=severity, subject=seen)
        elif ratio < 1 / 1.5:
            yield finding("accumulation-divided-twice", ratio, said, severity=severity, subject=seen)


@rule("normal")
def batchnorm_under_accumulation(facts):
    for seen in stepping(facts):
        if not seen.groups:
            continue
        pieces = seen.usual_pieces
        chosen = first_batch(facts)
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
def graphs_kept(facts):
    for held, what in ((facts.held, "graphs"), (facts.outputs_held, "outputs of models, with their graphs,")):
        if len(held) < 5:
            continue
        alive, made = held[-1]
        share = alive / max(1, made)
        facts.measured["graph-kept-alive"] = max(share, facts.measured.get("graph-kept-alive", 0.0))
        if made >= 4 and alive >= 4 and share >= 0.8:
            yield finding(
                "graph-kept-alive", share, f"{alive} of {made} earlier {what} looked at are still held"
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
