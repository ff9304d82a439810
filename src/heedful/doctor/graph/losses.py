"""A loss taken apart: its factors, its kind, its targets, and what stands wrongly before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .nodes import THROUGH, inputs, saved, through

MEAN, SUM = 1, 2  # torch's codes of reductions
_SCALARS = ("MulBackward0", "MulBackward1", "DivBackward0", "DivBackward1", "NegBackward0")
_LOSSES = {
    "NllLossBackward0": "classes",
    "NllLoss2DBackward0": "classes",
    "MseLossBackward0": "squares",
    "BinaryCrossEntropyWithLogitsBackward0": "logits",
    "BinaryCrossEntropyBackward0": "probabilities",
    "L1LossBackward0": "absolute",
    "SmoothL1LossBackward0": "smooth",
    "HuberLossBackward0": "huber",
}


@dataclass
class Loss:
    """A loss taken apart: factor · base, where base is a known loss or None."""

    factor: float = 1.0
    node: Any = None
    kind: str = ""
    reduction: int | None = None
    target: Tensor | None = None
    prediction: Tensor | None = None  # what the loss was given (logits where it makes its own softmax)
    terms: int = 1
    sign: int = 1  # of a residual: prediction − target, the other way round, or 0 where both have gradients
    ignore: int | None = None

    @property
    def classes(self) -> int | None:
        return self.prediction.shape[1] if self.kind == "classes" and self.prediction is not None else None


def take_apart(loss: Tensor) -> Loss:
    """Factors from the outside in, then the first loss found."""
    found, node = Loss(), loss.grad_fn
    for _ in range(16):
        name = node.name() if node is not None else ""
        if name in _SCALARS:
            factor = _factor(node)
            if factor is None:
                break
            found.factor *= factor
            node = inputs(node)[0]
        elif name.startswith(
            ("ViewBackward", "SqueezeBackward", "ExpandBackward", "CloneBackward", "ToCopyBackward")
        ):
            node = inputs(node)[0]
        else:
            break
    _base(node, found, 0)
    return found


def _factor(node) -> float | None:
    """By how much a node multiplies one scalar, where the other side is a number."""
    name = node.name()
    if name == "NegBackward0":
        return -1.0
    behind = inputs(node)
    other = saved(node, "other")
    if name in ("MulBackward1", "DivBackward1"):
        number = float(other) if isinstance(other, (int, float)) else None
    elif len(behind) == 1 and isinstance(other, Tensor) and other.numel() == 1:
        number = float(other)
    elif len(behind) == 1 and isinstance(saved(node, "self"), Tensor) and saved(node, "self").numel() == 1:
        number = float(saved(node, "self"))
    else:
        return None
    if number is None or number == 0:
        return None
    return 1 / number if name.startswith("Div") else number


def _base(node, found: Loss, depth: int) -> bool:
    """The first known loss behind a node, through sums of terms."""
    if node is None or depth > 12:
        return False
    name = node.name()
    if name in _LOSSES:
        found.node, found.kind = node, _LOSSES[name]
        found.reduction = saved(node, "reduction")
        found.target = _detached(saved(node, "target"))
        found.prediction = _detached(saved(node, "self"))
        if found.kind == "classes":
            ignore = saved(node, "ignore_index")
            found.ignore = ignore - 2**64 if ignore is not None and ignore >= 2**63 else ignore
        return True
    if name.startswith(("MeanBackward", "SumBackward")):
        # A squared difference by hand: mean((prediction − target)²).
        behind = through(inputs(node)[0]) if inputs(node) else None
        found.node = node
        found.reduction = MEAN if name.startswith("Mean") else SUM
        if behind is not None and _difference(behind, found):
            return True
        for part in inputs(node):
            if _base(part, found, depth + 1):
                return True
        return found.node is not None
    if name in _SCALARS or name.startswith(
        ("AddBackward", "SubBackward", "ViewBackward", "StackBackward", "Squeeze")
    ):
        parts = inputs(node)
        if name.startswith(("Add", "Sub", "Stack")):
            found.terms = max(found.terms, len(parts))
        return any(_base(part, found, depth + 1) for part in parts)
    return False


def _difference(node, found: Loss) -> bool:
    """prediction − target, squared or as a distance, by hand."""
    squared = (
        node.name() == "PowBackward0" and saved(node, "exponent") == 2
    ) or node.name() == "MulBackward0"
    residual = saved(node, "self")
    minus = through(inputs(node)[0]) if inputs(node) else None
    if not (squared or node.name() == "AbsBackward0") or not isinstance(residual, Tensor):
        return False
    if minus is None or minus.name() != "SubBackward0":
        return False
    found.kind = "residuals" if squared else "distances"
    left, right = (behind is not None for behind, _ in minus.next_functions)
    found.sign = int(left) - int(right)
    found.prediction = _detached(residual)
    return True


def _detached(thing):
    return thing.detach() if isinstance(thing, Tensor) else None


# What went into the loss


def softmax_before(loss: Loss) -> str:
    """The function that should not stand before this loss, or nothing."""
    if loss.node is None:
        return ""
    behind = through(inputs(loss.node)[0]) if inputs(loss.node) else None
    behind = _reordered(behind)
    if behind is None:
        return ""
    name = behind.name()
    if loss.kind == "classes":
        if name == "SoftmaxBackward0":
            return "softmax"  # nll_loss of probabilities
        if name == "LogSoftmaxBackward0":
            before = _reordered(through(inputs(behind)[0]) if inputs(behind) else None)
            if before is not None and before.name() in ("SoftmaxBackward0", "SigmoidBackward0"):
                return before.name().removesuffix("Backward0").lower()
    if loss.kind == "logits" and name in ("SigmoidBackward0", "SoftmaxBackward0"):
        return name.removesuffix("Backward0").lower()
    return ""


def _reordered(node):
    while node is not None and node.name().startswith(
        (*THROUGH, "PermuteBackward", "TransposeBackward", "TBackward", "CloneBackward")
    ):
        behind = inputs(node)
        node = behind[0] if behind else None
    return node


def mixed_view(loss: Loss) -> tuple[tuple[int, ...], int] | None:
    """(shape before, classes) where logits (N, classes, …) were viewed as (…, classes), not transposed."""
    if loss.kind != "classes" or loss.node is None or loss.prediction is None:
        return None
    node = inputs(loss.node)[0] if inputs(loss.node) else None
    if node is not None and node.name() == "LogSoftmaxBackward0":
        node = inputs(node)[0] if inputs(node) else None
    classes = loss.prediction.shape[1] if loss.prediction.dim() > 1 else None
    while node is not None and node.name().startswith(THROUGH):
        before = saved(node, "self_sym_sizes")
        if before is not None and len(before) > 2 and classes:
            before = tuple(int(size) for size in before)
            if before[1] == classes and before[-1] != classes and loss.prediction.dim() == 2:
                return before, classes
        behind = inputs(node)
        node = behind[0] if behind else None
    return None


def broadcast(loss: Loss, output: Tensor | None) -> float | None:
    """How many numbers the loss takes for each prediction, where (N, 1) met (N,)."""
    if (
        loss.kind not in ("squares", "residuals", "distances", "absolute", "smooth", "huber", "logits")
        or loss.prediction is None
    ):
        return None
    shape = loss.prediction.shape
    if loss.kind not in ("residuals", "distances"):
        behind = inputs(loss.node)[0] if inputs(loss.node) else None
        if behind is not None and behind.name() == "ExpandBackward0":
            before = saved(behind, "self_sym_sizes")
            numel = 1
            for size in before or ():
                numel *= int(size)
            return loss.prediction.numel() / numel if before and _square(shape, numel) else None
        return None
    if output is None or not _square(shape, output.numel()):
        return None
    return loss.prediction.numel() / output.numel()


def _square(shape, numel: int) -> bool:
    """(N, N) made of N predictions."""
    return len(shape) >= 2 and numel > 1 and shape[-1] == shape[-2] and shape.numel() == numel * shape[-1]
