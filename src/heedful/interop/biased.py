"""Attention with a number added to every pair's log-score, as the dense float masks of other libraries ask.

out_i = Σ_j sim(q_i, k_j) e^{b_ij} v_j / Σ_j sim(q_i, k_j) e^{b_ij}

All pairs are held at once: a dense bias already is of that size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention import attend
from ..attention.neighbors import Neighbors, Tile
from ..attention.position import Position, toeplitz_block
from ..attention.similarity import Similarity
from ..attention.strategies.base import divide
from ..attention.transforms import traced


def attend_biased(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    *,
    similarity: Similarity,
    neighbors: Neighbors,
    position: Position | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """`attend` with `bias`, which broadcasts to (..., heads, queries, keys), added to the log-scores.

    −inf silences a pair; who hears nobody gets 0. Gradients reach the bias.
    """
    dtype, repeats = query.dtype, query.shape[-3] // key.shape[-3]
    key, value = (x.repeat_interleave(repeats, -3) if repeats > 1 else x for x in (key, value))
    if position is not None and position.rotates:
        query, key = position.rotate(query, key.shape[-2] - query.shape[-2]), position.rotate(key, 0)
        position = None
    exact = torch.promote_types(dtype, torch.float32)
    query, key, value, bias = (x.to(exact) for x in (query, key, value, bias))
    tile = Tile.whole(query.shape[-2], key.shape[-2], query.device)
    if position is not None:
        table = position.table(tile.queries, tile.keys, query.shape[-3], query)
        bias = bias + toeplitz_block(table, tile.rows, tile.columns, tile.keys)
    scores = similarity.scores(*similarity.prepare(query, key))  # (..., heads, queries, keys)
    weights = similarity.weigh(scores, bias, neighbors.mask(tile))
    normalizer = weights.sum(-1, keepdim=True)
    return divide(F.dropout(weights, dropout) @ value, normalizer).to(dtype)


def attend_either(
    query: Tensor, key: Tensor, value: Tensor, *, bias: Tensor | None, strategy: str = "auto", **options
) -> Tensor:
    """`attend`, or `attend_biased` where there is a bias."""
    if bias is None:
        return attend(query, key, value, strategy=strategy, **options)
    if strategy not in ("auto", "reference"):
        raise ValueError(f"strategy={strategy!r} takes no bias for every pair; with one, use 'auto'.")
    return attend_biased(query, key, value, bias, **options)


def attend_and_weigh(query: Tensor, key: Tensor, value: Tensor, **options) -> tuple[Tensor, Tensor]:
    """What `attend_either` gives, and the weights (..., heads, queries, keys) it came from, after dropout.

    The weights are what is heard when speaker j says the j-th unit vector, so one call has both.
    """
    width, keys = value.shape[-1], key.shape[-2]
    words = torch.eye(keys, dtype=value.dtype, device=value.device).expand(*value.shape[:-1], keys)
    out = attend_either(query, key, torch.cat([value, words], -1), **options)
    return out[..., :width], out[..., width:]


def only_silences(bias: Tensor) -> Tensor | None:
    """Which pairs a dense float mask allows, if all it does is allow (0) or forbid (−inf, or as good as)."""
    if traced() or bias.requires_grad:
        return None
    allowed = bias == 0
    forbidden = bias <= torch.finfo(bias.dtype).min
    return allowed if bool((allowed | forbidden).all()) else None
