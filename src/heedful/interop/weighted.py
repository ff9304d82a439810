"""`attend` as other libraries call it: perhaps with a dense bias, perhaps returning weights too."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention import Everyone, Mask, Softmax, attend
from ..attention.transforms import traced
from ..attention.weights import weigh


def attend_either(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias: Tensor | None = None,
    want_weights: bool = False,
    dropout: float = 0.0,
    strategy: str = "auto",
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """`attend`; through the weights where they are wanted, or where `bias` has a number for every pair.

    The weights, (..., heads, queries, keys), are those after dropout.
    """
    if bias is None and not want_weights:
        return attend(query, key, value, dropout=dropout, strategy=strategy, **options), None
    if bias is not None and strategy not in ("auto", "reference"):
        raise ValueError(f"strategy={strategy!r} takes no bias for every pair; with one, use 'auto'.")
    if bias is not None and not want_weights and not dropout and _fusible(options):
        return _fused(query, key, value, bias, **options), None
    weights = weigh(query, key, bias=bias, **options)
    if dropout:
        weights = F.dropout(weights, dropout)
    repeats = query.shape[-3] // key.shape[-3]
    if repeats > 1:
        value = value.repeat_interleave(repeats, -3)
    return weights @ value, weights if want_weights else None


def _fusible(options: dict[str, Any]) -> bool:
    """Whether torch's own attention, which takes a bias for every pair, computes this."""
    similarity, neighbors = options["similarity"], options["neighbors"]
    plain = isinstance(similarity, Softmax) and not isinstance(similarity.scale, Tensor)
    return plain and options.get("position") is None and isinstance(neighbors, (Everyone, Mask))


def _fused(query, key, value, bias, *, similarity, neighbors, position=None) -> Tensor:
    if isinstance(neighbors, Mask):
        bias = bias.masked_fill(~neighbors.allowed, -torch.inf)
    bias = bias.to(query.dtype).expand(*query.shape[:-1], key.shape[-2])
    grouped = query.shape[-3] != key.shape[-3]
    return F.scaled_dot_product_attention(query, key, value, bias, scale=similarity.scale, enable_gqa=grouped)


def only_silences(bias: Tensor) -> Tensor | None:
    """Which pairs a dense float mask allows, if all it does is allow (0) or forbid (−inf, or as good as)."""
    if traced() or bias.requires_grad:
        return None
    allowed = bias == 0
    forbidden = bias <= torch.finfo(bias.dtype).min
    return allowed if bool((allowed | forbidden).all()) else None
