"""Active questions to a model, a loss and one batch: no training of it, its weights stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from . import leaks
from .copies import copied, undisturbed
from .facts import Batch
from .findings import Finding
from .graph import Objective
from .report import Report
from .rules import RULES, fold
from .rules.depth import depth
from .rules.learning import fits
from .watching import Watch


def examine(
    model: nn.Module,
    loss: Callable[[Any, Any], Tensor],
    batch: Sequence[Any],
    *,
    causal: bool | None = None,
    independent: bool = True,
) -> Report:
    """Ask a model about itself: first loss, gradients along depth, dead units, one batch by heart …

    Args:
        model: any module; copies of it are asked, so it stays as it is.
        loss: loss(model(x), y), a number.
        batch: (x, y).
        causal: whether output i may not hear inputs after i; unless given, asked where y is x one later.
        independent: whether samples of a batch may not hear each other.

    >>> from heedful import doctor
    >>> model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3), nn.Softmax(-1))
    >>> batch = torch.randn(64, 8), torch.randint(3, (64,))
    >>> "double-softmax" in doctor.examine(model, nn.functional.cross_entropy, batch)
    True
    """
    x, y = batch
    asked = copied(model)
    if asked is None:
        raise ValueError(
            "examine(): the model cannot be copied (copy.deepcopy fails), so it cannot be asked safely."
        )
    asked.train()
    parameters = [p for p in asked.parameters() if p.requires_grad]
    if not parameters:
        raise ValueError(
            "examine(): no parameter of the model requires a gradient; there is nothing to train."
        )
    optimizer = torch.optim.SGD(parameters, lr=0.0)
    watch = Watch(asked, optimizer, tier="deep")
    with undisturbed(0), torch.enable_grad(), watch:
        for _ in range(3):
            optimizer.zero_grad()
            value = loss(asked(x), y)
            if not isinstance(value, Tensor) or value.numel() != 1:
                raise ValueError(
                    f"examine(): loss(model(x), y) gave {value!r}; it must be a tensor of one number."
                )
            if not value.requires_grad:
                raise ValueError("examine(): the loss does not depend on any parameter of the model.")
            value.backward()
            optimizer.step()
    facts = watch.facts
    wanted = {
        "not_finite",
        "shapes_of_the_loss",
        "dead_units",
        "loss_at_the_start",
        "attention",
        "normalisers",
        "gradients_that_never_arrive",
    }
    found: list[Finding] = []
    kept = copied(model)
    assert kept is not None
    aim = Objective("given", lambda out: loss(out, y), y if isinstance(y, Tensor) else None)
    read = next((b.objective for b in facts.batches if b.objective is not None), None)
    if read is not None:
        aim.kind, aim.classes, aim.target = read.kind, read.classes, read.target
    first = Batch(kept, (x,), {}, aim, facts.losses[0][1] if facts.losses else float("nan"), 0)
    questions: list[tuple[str, Callable[[], Any]]] = [
        (rule.__name__, partial(rule, facts)) for _, rule in RULES if rule.__name__ in wanted
    ]
    questions += [
        ("gradients along depth", lambda: depth(facts, kept, first)),
        ("one batch by heart", lambda: fits(facts, kept, first)),
    ]
    if causal is None:
        causal = facts.shifted
    if causal:
        questions.append(("causal", lambda: _one(leaks.check_causal(kept, x))))
    if independent and isinstance(x, Tensor) and x.dim() > 1 and len(x) > 1:
        questions.append(("batch", lambda: _one(leaks.check_batch_independence(kept, x))))
    with undisturbed(0):
        for name, question in questions:
            try:
                found += question()
            except Exception as error:
                facts.note(f"{name} could not be asked: {error}")
    # A rate of zero updates nothing, on purpose.
    found = [entry for entry in fold(found) if entry.name != "parameter-never-updated"]
    order = {"serious": 0, "warning": 1, "note": 2}
    found.sort(key=lambda entry: order[entry.severity])
    return Report(
        findings=found,
        notes=facts.notes,
        losses=[],
        measured=facts.measured,
        subject=type(model).__name__,
    )


def _one(found: Finding | None) -> list[Finding]:
    return [] if found is None else [found]
