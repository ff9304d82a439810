"""A loss taken apart: its factors, its kind, its targets, and what stands wrongly before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Size, Tensor

from .nodes import THROUGH, inputs, saved, shape_of, through

MEAN, SUM = 1, 2  # torch's codes of reductions
PROBABILITIES = "softmax in place of its logarithm"  # what nll_loss should not get
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
    if not isinstance(thing, Tensor):
        return None
    return thing.detach() if thing.requires_grad else thing  # as it is: what it is a view of is asked for


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
            return PROBABILITIES
        if name == "LogSoftmaxBackward0":
            before = _reordered(through(inputs(behind)[0]) if inputs(behind) else None)
            if before is not None and before.name() in ("SoftmaxBackward0", "SigmoidBackward0"):
                return before.name().removesuffix("Backward0").lower()
    if loss.kind == "logits" and name in ("SigmoidBackward0", "SoftmaxBackward0"):
        return name.removesuffix("Backward0").lower()
    return ""


# Some of the numbers, each as it was.
_PARTS = ("SliceBackward", "SelectBackward", "IndexBackward", "IndexSelectBackward", "MaskedSelectBackward")


def _reordered(node):
    while node is not None and node.name().startswith(
        (*THROUGH, "PermuteBackward", "TransposeBackward", "TBackward", *_PARTS)
    ):
        behind = inputs(node)
        node = behind[0] if behind else None
    return node


def mixed_view(loss: Loss) -> tuple[str, int] | None:
    """(what was mixed, classes) where a view before the loss cut through the classes, or swapped two axes."""
    given = loss.prediction
    if loss.kind != "classes" or loss.node is None or given is None or given.dim() != 2:
        return None
    classes = given.shape[1]
    node = inputs(loss.node)[0] if inputs(loss.node) else None
    if node is not None and node.name() == "LogSoftmaxBackward0":
        node = inputs(node)[0] if inputs(node) else None
    while node is not None and node.name().startswith(THROUGH):
        before = tuple(int(size) for size in saved(node, "self_sym_sizes") or ())
        if len(before) > 2 and before[1] == classes != before[-1]:
            return f"{before} was viewed as (…, {classes}); axis 1 holds the {classes} classes", classes
        if len(before) == 3 and before[-1] == classes and _layout(loss.target) == before[1::-1] != before[:2]:
            said = f"logits {before} and labels {before[1::-1]} were both made flat: their axes are swapped"
            return said, classes
        behind = inputs(node)
        node = behind[0] if behind else None
    return None


def crossed_view(nodes: list, samples: int) -> str:
    """A view that made rows of samples out of a tensor whose first axis is not theirs, as (layers, N, …)."""
    for node in nodes:
        if node.name() in ("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"):
            before, after = tuple(int(size) for size in saved(node, "self_sym_sizes") or ()), shape_of(node)
            cut = after[:1] == (samples,) and len(before) > 1 and before[0] > 1 and before[0] % samples
            if cut and samples in before[1:]:
                return f"{before} was viewed as {after}: axis {before.index(samples, 1)} holds the samples"
    return ""


def _layout(target: Tensor | None) -> tuple[int, ...]:
    """The shape of the tensor that flat labels are a view of all of."""
    base = getattr(target, "_base", None)
    return tuple(base.shape) if base is not None and base.numel() == target.numel() else ()  # type: ignore[union-attr]


_EACH = (
    "Abs",
    "Add",
    "Clamp",
    "Div",
    "Exp",
    "Log",
    "Maximum",
    "Minimum",
    "Mul",
    "Neg",
    "Pow",
    "Relu",
    "Where",
)


def broadcast(loss: Loss, output: Tensor | None, root) -> float | None:
    """How many numbers the loss takes for each prediction, where (N, 1) met (N,), inside it or behind it."""
    if loss.node is None:
        return None
    found = _in_loss(loss, output)
    if found is None and output is not None and loss.kind not in ("", "residuals", "distances"):
        found = _pairs(root, output.numel())
    return found


def _in_loss(loss: Loss, output: Tensor | None) -> float | None:
    if loss.kind in ("squares", "absolute", "smooth", "huber", "logits"):
        behind = inputs(loss.node)[0] if inputs(loss.node) else None
        if behind is None or behind.name() != "ExpandBackward0" or loss.prediction is None:
            return None
        size = Size(shape_of(inputs(behind)[0])) if inputs(behind) else Size()
        return loss.prediction.shape[-1] if _square(loss.prediction.shape, size.numel()) else None
    if output is None or loss.kind not in ("", "residuals", "distances"):
        return None
    if loss.prediction is not None:
        return loss.prediction.shape[-1] if _square(loss.prediction.shape, output.numel()) else None
    return _pairs(loss.node, output.numel())


def _pairs(node, predictions: int, depth: int = 6) -> float | None:
    """N where a loss takes (N, N) pairs of N predictions or their losses with N numbers without gradients."""
    for behind in inputs(node):
        made = inputs(behind)
        if (
            behind.name() in ("SubBackward0", "MulBackward0", "DivBackward0")
            and len(made) == 1
            and shape_of(behind) == (predictions, predictions)
            and predictions > 1
            and Size(shape_of(made[0])).numel() == predictions
        ):
            others = [saved(behind, name) for name in ("self", "other")]  # a difference keeps neither
            table = any(isinstance(t, Tensor) and t.numel() > predictions for t in others)
            meant = made[0].name().startswith("Unsqueeze")  # every pair, as it was asked for
            if not (meant or table):
                return float(predictions)
        if depth and behind.name().startswith((*_EACH, "Sum", "Mean")) and behind.name() != "SubBackward0":
            found = _pairs(behind, predictions, depth - 1)
            if found is not None:
                return found
    return None


def _square(shape, numel: int) -> bool:
    """(N, N) made of N predictions."""
    return len(shape) >= 2 and numel > 1 and shape[-1] == shape[-2] and shape.numel() == numel * shape[-1]
