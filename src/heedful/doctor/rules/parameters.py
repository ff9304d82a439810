"""Parameters that training misses, and modes in which a model should not be."""

from __future__ import annotations

from ..findings import finding
from .common import parameters, rule, some, stepping

_NOTHING_BEHIND = (
    "No parameter is behind the loss: it was made anew, or of numbers taken out of the graph (torch.tensor, "
    ".data, .item(), argmax, numpy)."
)


@rule()
def missing_parameters(facts):
    if not stepping(facts) or facts.looks < 3:
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
            f"no optimizer holds {len(missing)} of {len(facts.reached)} parameters with a gradient",
            where=some(names),
        )


@rule()
def gradients_that_never_arrive(facts):
    if not stepping(facts) or facts.looks < 3:
        return
    ran = {id(p) for module in facts.called.values() for p in module.parameters(recurse=False)}
    ran |= {
        key
        for calls in facts.models.values()
        for p in calls.model.parameters(recurse=False)
        for key in [id(p)]
    }
    compiled = any("compiled" in text for text in facts.notes)
    cut, unused, still, zero = [], [], [], []
    largest = max((slot.norm for slot in facts.slots.values()), default=0.0)
    for key, slot in facts.slots.items():
        if not slot.parameter.requires_grad or key not in facts.names:
            continue
        if slot.norm == 0 and key not in facts.reached:
            (cut if key in ran else unused).append(slot)
        elif slot.norm == 0 and slot.looks >= 5 and slot.parameter.dim() > 1 and largest > 0:
            zero.append(slot)  # of a bias it may be so: a critic's cancels between real and made up
        elif slot.norm > 1e-5 * largest and slot.looks >= 3 and slot.change == 0:
            still.append(slot)  # a bias before a norm has rounding for a gradient, and may stay
    if cut and not compiled:
        yield finding(
            "gradient-never-arrives",
            0.0,
            f"{parameters(len(cut))} took part in the forward pass and got no gradient in {facts.looks} "
            f"steps looked at",
            where=some([facts.name(slot.parameter) for slot in cut]),
            **({} if facts.reached else {"cause": _NOTHING_BEHIND}),
        )
    elif zero:
        yield finding(
            "gradient-never-arrives",
            0.0,
            f"the gradient of {parameters(len(zero))} was exactly zero in {zero[0].looks} steps looked at",
            where=some([facts.name(slot.parameter) for slot in zero]),
            cause="It is multiplied by zero on the way: two factors that both begin at zero, or a mask.",
        )
    elif unused and not compiled:
        yield finding(
            "gradient-never-arrives",
            0.0,
            f"the optimizer holds {parameters(len(unused))} of modules that never ran",
            severity="note",
            where=some([facts.name(slot.parameter) for slot in unused]),
            cause="Their modules are not used in the forward pass.",
        )
    if still:
        yield finding(
            "parameter-never-updated",
            0.0,
            f"{parameters(len(still))} had gradients and did not change in any step looked at",
            where=some([facts.name(slot.parameter) for slot in still]),
        )


@rule()
def modes(facts):
    several = len(stepping(facts)) > 1
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
