"""The loss again, as a function of the model's output, so that it can be taken of a copy's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .losses import MEAN, SUM, Loss
from .nodes import first_tensor


@dataclass
class Objective:
    """The loss as a function of the model's output: what the loss was given is compared with the output."""

    kind: str
    function: Callable[[Any], Tensor] = field(repr=False)
    target: Tensor | None = None
    classes: int | None = None
    reduction: str = "mean"


def objective(loss_value: Tensor, apart: Loss, output: Any) -> Objective | None:
    """How to compute this loss from this output, or None where the graph does not say."""
    inside = _scalar_inside(output, loss_value)
    if inside is not None:
        return Objective("own", inside)
    tensor, pick = first_tensor(output)
    if tensor is None or (apart.terms > 1 and apart.kind != "classes") or apart.prediction is None:
        return None
    given, target = apart.prediction, apart.target
    arrange = _arrangement(tensor, given, apart.kind)
    if arrange is None or apart.reduction not in (MEAN, SUM):
        return None
    reduction = "mean" if apart.reduction == MEAN else "sum"
    if apart.kind in ("residuals", "distances"):
        if not apart.sign:
            return None
        aim = (arrange(tensor) - apart.sign * given).detach()
        kind, made = ("squares", F.mse_loss) if apart.kind == "residuals" else ("absolute", F.l1_loss)
        return Objective(
            kind, lambda out: made(arrange(pick(out)), aim, reduction=reduction), aim, reduction=reduction
        )
    assert target is not None
    functions: dict[str, Callable] = {
        "squares": F.mse_loss,
        "logits": F.binary_cross_entropy_with_logits,
        "probabilities": F.binary_cross_entropy,
        "absolute": F.l1_loss,
        "smooth": F.smooth_l1_loss,
        "huber": F.huber_loss,
    }
    target = target.clone()
    if apart.kind == "classes":
        ignore = -100 if apart.ignore is None else apart.ignore

        def classes(out):
            return F.nll_loss(
                arrange(pick(out)).log_softmax(1), target, ignore_index=ignore, reduction=reduction
            )

        return Objective("classes", classes, target, given.shape[1], reduction)
    function = functions[apart.kind]
    return Objective(
        apart.kind, lambda out: function(arrange(pick(out)), target, reduction=reduction), target
    )


def _arrangement(output: Tensor, given: Tensor, kind: str) -> Callable[[Tensor], Tensor] | None:
    """How the loss's input was laid out from the output; log-probabilities are compared as such."""
    shape = tuple(given.shape)
    ways: list[Callable[[Tensor], Tensor]] = [lambda out: out.reshape(shape)]
    if output.dim() > 2:
        ways += [lambda out: out.movedim(-1, 1).reshape(shape), lambda out: out.movedim(1, -1).reshape(shape)]
    if kind in ("residuals", "distances"):
        return ways[0] if output.numel() == given.numel() else None
    for way in ways:
        try:
            laid = way(output)
        except RuntimeError:
            continue
        compared = laid.log_softmax(1) if kind == "classes" else laid
        if torch.allclose(compared.to(given.dtype), given, atol=1e-4, rtol=1e-3):
            return way
    return None


def _scalar_inside(output: Any, loss: Tensor) -> Callable[[Any], Tensor] | None:
    """Where the model gives its loss itself, as transformers do."""
    picks: tuple[Callable, ...] = (lambda out: out,)
    if not isinstance(output, Tensor):
        picks = (lambda out: out.loss, lambda out: out["loss"], lambda out: out[0])
    for pick in picks:
        try:
            inside = pick(output)
        except Exception:
            continue
        if (
            isinstance(inside, Tensor)
            and inside.numel() == 1
            and torch.allclose(inside.detach().float().reshape(()), loss.float().reshape(()), rtol=1e-4)
        ):
            return partial(_number_of, pick)
    return None


def _number_of(pick: Callable, output: Any) -> Tensor:
    return pick(output).reshape(())
