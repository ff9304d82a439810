"""What a graph kept of activations: ReLUs, squashing functions, attention, normalisers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .nodes import THROUGH, inputs, saved, shape_of


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


def _pools(nodes: list) -> set:
    """Softmaxes over one axis of two that weigh what has a third: pooling, not probabilities of classes."""
    found = set()
    for node in nodes:
        if node.name() not in ("BmmBackward0", "MulBackward0"):
            continue
        for behind in inputs(node):
            turned = False
            while behind.name().startswith(
                (*THROUGH, "ExpandBackward", "PermuteBackward", "TransposeBackward")
            ):
                turned = True
                if not inputs(behind):
                    break
                behind = inputs(behind)[0]
            if turned and behind.name() == "SoftmaxBackward0" and len(shape_of(node)) > 2:
                found.add(behind)
    return found


def _noisy(node) -> bool:
    """Whether scores had numbers without gradients added, as Gumbel noise is: such a softmax may be sharp."""
    for _ in range(3):
        behind = inputs(node)
        if not behind:
            return False
        node = behind[0]
        if node.name().startswith(("Add", "Sub")) and len(inputs(node)) == 1:
            return True
    return False


def attentions(nodes: list) -> Iterator[tuple[Any, Tensor]]:
    """(node, weights (…, N, M)) of every softmax that looks like attention, and of torch's fused kernels."""
    pools = _pools(nodes)
    for node in nodes:
        name = node.name()
        if name in ("SoftmaxBackward0", "SafeSoftmaxBackward0"):
            weights, dim = saved(node, "result"), saved(node, "dim")
            if not isinstance(weights, Tensor) or weights.dim() < 2:
                continue
            if weights.dim() == 2 and (node not in pools or _noisy(node)):
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


def spread(node) -> float | None:
    """The deviation of the scores a softmax was taken of, computed again from queries and keys."""
    for _ in range(8):
        behind = inputs(node)
        if not behind:
            return None
        node = behind[0]
        if node.name() == "BmmBackward0":
            left, right = saved(node, "self"), saved(node, "mat2")
            if isinstance(left, Tensor) and isinstance(right, Tensor):
                return float((left.detach()[:8].float() @ right.detach()[:8].float()).std())
            return None
    return None


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
