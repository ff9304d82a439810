"""The weights themselves: for looking at, and where every pair has a bias of its own.

α_ij = sim(q_i, k_j; i−j) e^{b_ij} / Σ_{j' ∈ N(i)} sim(q_i, k_j'; i−j') e^{b_ij'}

All pairs are held at once: the answer is of that size.
"""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from ..graphs import Graph
from .check import check_call
from .neighbors import Everyone, Neighbors, Tile, as_neighbors
from .operator import attend
from .position import Position, toeplitz_block
from .similarity import Similarity, Softmax
from .strategies.base import divide


def weigh(
    query: Tensor,
    key: Tensor,
    *,
    similarity: Similarity | None = None,
    neighbors: Neighbors | Graph | None = None,
    position: Position | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """α_ij, with which `attend` weighs the values, (..., heads, queries, keys): rows sum to 1 or 0.

    Args:
        query, key, similarity, neighbors, position: as for `attend`.
        bias: added to the log-scores; broadcasts to (..., heads, queries, keys), −inf silences.


    >>> import torch
    >>> from heedful import Causal, Softmax, attend
    >>> q, k, v = torch.randn(3, 2, 8, 10, 4)
    >>> alpha = weigh(q, k, neighbors=Causal())
    >>> torch.allclose(alpha @ v, attend(q, k, v, neighbors=Causal()), atol=1e-6)
    True
    """
    similarity = Softmax() if similarity is None else similarity
    neighbors = Everyone() if neighbors is None else as_neighbors(neighbors)
    check_call(query, key, key, similarity, neighbors, position)
    if query.dim() == 2:
        return weigh(
            query[None], key[None], similarity=similarity, neighbors=neighbors, position=position, bias=bias
        )[0]
    queries, keys = query.shape[-2], key.shape[-2]
    if neighbors.facts(queries, keys).graph:
        if bias is not None:
            raise ValueError("weigh(): on a graph, give the bias to its edges: graph.with_edges(bias=…).")
        # The weights are what is heard when speaker j says the j-th unit vector.
        words = torch.eye(keys, dtype=key.dtype, device=key.device).expand(*key.shape[:-1], keys)
        return attend(query, key, words, similarity=similarity, neighbors=neighbors, position=position)
    dtype, repeats = query.dtype, query.shape[-3] // key.shape[-3]
    wide = torch.promote_types(dtype, torch.float32)
    query, key = query.to(wide), key.to(wide)
    if repeats > 1:
        key = key.repeat_interleave(repeats, -3)
    if position is not None:
        position.check(neighbors.span(queries, keys), query.shape[-3], query.shape[-1])
        if position.rotates:
            query, key = position.rotate(query, keys - queries), position.rotate(key, 0)
        else:
            table = position.table(queries, keys, query.shape[-3], query)
            block = toeplitz_block(table, (0, queries), (0, keys), keys)
            bias = block if bias is None else bias + block
    similarity = similarity.fitted(key)
    scores = similarity.scores(*similarity.prepare(query, key))  # (..., heads, queries, keys)
    allowed = neighbors.mask(Tile.whole(queries, keys, query.device))
    bias = None if bias is None else bias.to(wide)
    if similarity.log_form and similarity.kind != "argmax":
        if bias is None and allowed is None:
            return scores.softmax(-1).to(dtype)
        logits = scores if bias is None else scores + bias
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -inf)
        return torch.ops.aten._safe_softmax(logits, -1).to(dtype)  # safe: 0, not NaN, for who hears nobody
    weights = similarity.weigh(scores, bias, allowed)
    return divide(weights, weights.sum(-1, keepdim=True)).to(dtype)
