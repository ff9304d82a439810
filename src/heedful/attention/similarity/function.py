"""A function of one's own."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from .base import Similarity, hashable


class ScoreFunction(Similarity):
    """sim = exp(fn(query, key)), fn from (..., N, d) and (..., M, d) to (..., N, M) scores: the escape hatch.

    The planner cannot look inside, so it runs tiled. `fn` sees blocks of queries and keys, never positions.

    >>> import torch, heedful
    >>> q, k, v = torch.randn(3, 1, 6, 2)
    >>> closeness = heedful.ScoreFunction(lambda q, k: -torch.cdist(q, k))
    >>> heedful.attend(q, k, v, similarity=closeness).shape
    torch.Size([1, 6, 2])
    """

    kind = "function"
    hidden = True

    def __init__(self, fn: Callable[[Tensor, Tensor], Tensor]):
        if not callable(fn):
            raise TypeError(f"ScoreFunction(fn): fn must be callable, got {type(fn).__name__}.")
        self.fn = fn
        super().__init__(fn if hashable(fn) else id(fn))

    def check(self, query_dim, key_dim, heads):
        pass

    def scores(self, query, key):
        scores = self.fn(query, key)
        if not isinstance(scores, Tensor):
            raise TypeError(f"{self}: fn must return a tensor of scores, got {type(scores).__name__}.")
        if tuple(scores.shape[-2:]) != (query.shape[-2], key.shape[-2]):
            raise ValueError(
                f"{self}: fn returned shape {tuple(scores.shape)} for {query.shape[-2]} queries and "
                f"{key.shape[-2]} keys; it takes (..., N, d) and (..., M, d) to scores (..., N, M)."
            )
        return scores

    def pairs(self, query, key):
        return self.fn(query[..., None, :], key[..., None, :]).squeeze(-1).squeeze(-1)

    def __repr__(self):
        return f"ScoreFunction({getattr(self.fn, '__name__', type(self.fn).__name__)})"
