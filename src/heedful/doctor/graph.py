"""What the autograd graph behind a loss tells: its factors, its kind, targets, activations, attention.

Nodes keep what their backward pass needs (`_saved_…`): a stranger's code is understood without hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

MEAN, SUM = 1, 2  # torch's codes of reductions
LIMIT = 20_000  # nodes looked at
_SCALARS = ("MulBackward0", "MulBackward1", "DivBackward0", "DivBackward1", "NegBackward0")
_THROUGH = (
    "ViewBackward0",
    "UnsafeViewBackward0",
    "ReshapeAliasBackward0",
    "SqueezeBackward",
    "UnsqueezeBackward",
)
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


def saved(node, name: str) -> Any:
    """What a node kept, or None: it may be freed, changed since, or not of this kind."""
    try:
        return getattr(node, f"_saved_{name}", None)
    except RuntimeError:
        return None


def walk(root) -> list:
    """Every node behind `root`, nearest first."""
    seen, found, at = {root}, [root], 0
    while at < len(found) and len(found) < LIMIT:
        for node, _ in found[at].next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                found.append(node)
        at += 1
    return found


def inputs(node) -> list:
    return [entry for entry, _ in node.next_functions if entry is not None]


def through(node, *names: str):
    """The first node behind this one that does more than reshape."""
    while node is not None and node.name().startswith(names or _THROUGH):
        behind = inputs(node)
        node = behind[0] if behind else None
    return node


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
        (*_THROUGH, "PermuteBackward", "TransposeBackward", "TBackward", "CloneBackward")
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
    while node is not None and node.name().startswith(_THROUGH):
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


# What is on the way


def reached(nodes: list) -> set[int]:
    """Ids of the parameters that a gradient of this loss reaches."""
    return {id(node.variable) for node in nodes if hasattr(node, "variable")}


def nearest(node, names: dict[int, str]) -> str:
    """The name of the first parameter behind a node."""
    seen, queue = {node}, [node]
    while queue and len(seen) < 200:
        at = queue.pop(0)
        if hasattr(at, "variable") and id(at.variable) in names:
            return names[id(at.variable)].rpartition(".")[0] or names[id(at.variable)]
        for entry in inputs(at):
            if entry not in seen:
                seen.add(entry)
                queue.append(entry)
    return ""


def units_axis(node, dims: int) -> int:
    """Which axis of an activation holds its units: channels behind a convolution, else the last."""
    for _ in range(4):
        behind = inputs(node)
        if not behind or "Backward" not in behind[0].name():
            break
        node = behind[0]
        if node.name().startswith("Convolution"):
            return 1
        if node.name().startswith(("Addmm", "Mm", "UnsafeView", "Bmm", "View")):
            break
    return dims - 1


def relus(nodes: list) -> Iterator[tuple[Any, Tensor]]:
    for node in nodes:
        if node.name() == "ReluBackward0":
            result = saved(node, "result")
            if isinstance(result, Tensor) and result.dim() >= 2:
                yield node, result.detach()


def saturations(nodes: list) -> float | None:
    """The largest share of a layer's tanh or sigmoid outputs that are within 0.01 of their ends."""
    worst = None
    for node in nodes:
        name = node.name()
        if name in ("TanhBackward0", "SigmoidBackward0"):
            result = saved(node, "result")
            if isinstance(result, Tensor) and result.numel() > 1:
                y = result.detach()
                flat = (y.abs() > 0.99) if name.startswith("Tanh") else ((y - 0.5).abs() > 0.49)
                share = float(flat.float().mean())
                worst = share if worst is None else max(worst, share)
    return worst


def attentions(nodes: list) -> Iterator[tuple[Any, Tensor]]:
    """(node, weights (…, N, M)) of every softmax that looks like attention, and of torch's fused kernels."""
    for node in nodes:
        name = node.name()
        if name == "SoftmaxBackward0":
            weights, dim = saved(node, "result"), saved(node, "dim")
            if not isinstance(weights, Tensor) or weights.dim() < 3:
                continue
            dim = dim - 2**64 if dim >= 2**63 else dim
            yield node, weights.detach().movedim(dim, -1)
        elif name.startswith("ScaledDotProduct"):
            query, key = saved(node, "query"), saved(node, "key")
            if (
                not isinstance(query, Tensor)
                or not isinstance(key, Tensor)
                or query.shape[-2] * key.shape[-2] > 2**20
            ):
                continue
            query, key = query.detach()[:2].float(), key.detach()[:2].float()
            scale = saved(node, "scale") or query.shape[-1] ** -0.5
            if key.shape[-3] != query.shape[-3]:
                key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
            scores = query @ key.mT * scale
            if saved(node, "is_causal"):
                scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
            mask = saved(node, "attn_mask")
            if isinstance(mask, Tensor):
                mask = mask[:2] if mask.dim() == 4 and mask.shape[0] > 2 else mask
                scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
            yield node, scores.softmax(-1).nan_to_num(0.0)


def entropy(weights: Tensor) -> Tensor | None:
    """Entropy of attention over that of as many equal weights, one number a head."""
    weights = weights.float()
    heard = (weights > 0).sum(-1)
    # Weights that underflow are heard too: where a softmax has no mask, rows are as long as the keys.
    full = weights.shape[-1]
    masked = heard.float().mean() < 0.9 * full and _triangular(weights)
    count = heard if masked else torch.full_like(heard, full)
    if full < 4:
        return None
    entropies = torch.special.entr(weights).sum(-1) / count.clamp_min(2).float().log()
    counted = (count > 3).float()
    if not counted.any():
        return None
    per_row = (entropies * counted).flatten(-1).sum(-1) / counted.sum(-1).clamp_min(1)  # (…, heads)
    return per_row.mean(0) if per_row.dim() > 1 else per_row.mean().reshape(1)


def _triangular(weights: Tensor) -> bool:
    above = torch.ones(weights.shape[-2:], dtype=torch.bool, device=weights.device).triu(1)
    return not bool(weights[..., above].any()) if weights.shape[-1] == weights.shape[-2] else False


def normalisers(nodes: list) -> Iterator[tuple[Any, Tensor]]:
    """Denominators with one number for a row, that parameters have a say in."""
    for node in nodes:
        if node.name() != "DivBackward0" or len(inputs(node)) < 2:
            continue
        other, top = saved(node, "other"), saved(node, "self")
        if (
            isinstance(other, Tensor)
            and other.dim() >= 2
            and other.numel() >= 8
            and isinstance(top, Tensor)
            and top.dim() == other.dim()
            and 1 in (other.shape[-1], other.shape[-2])
            and top.shape != other.shape
        ):
            behind = inputs(node)[1]
            for _ in range(6):  # a root or a norm is a size, not a sum of weights
                if behind is None or behind.name().startswith(
                    ("Sqrt", "Std", "Var", "LinalgVectorNorm", "NormBackward")
                ):
                    break
                behind = inputs(behind)[0] if inputs(behind) else None
                if behind is None:
                    break
            else:
                behind = None
            if behind is None or not behind.name().startswith(("Sqrt", "Std", "Var", "Linalg", "Norm")):
                yield node, other.detach()


# The loss again, from the model's output


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


def first_tensor(output: Any) -> tuple[Tensor | None, Callable[[Any], Tensor]]:
    """The first tensor of floats in an output, and how to get there again."""
    if isinstance(output, Tensor):
        return (output if output.is_floating_point() else None), lambda out: out
    if hasattr(output, "logits") and isinstance(output.logits, Tensor):
        return output.logits, lambda out: out.logits
    if isinstance(output, dict):
        for key, entry in output.items():
            if isinstance(entry, Tensor) and entry.is_floating_point():
                return entry, lambda out, key=key: out[key]
    if isinstance(output, (tuple, list)):
        for place, entry in enumerate(output):
            if isinstance(entry, Tensor) and entry.is_floating_point():
                return entry, lambda out, place=place: out[place]
    return None, lambda out: out
