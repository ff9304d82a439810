"""exp(scale · q·k), and its limit."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..transforms import broadcasts, fixed
from .base import Similarity, per_head, row_top, short, signature_of


class _Dot(Similarity):
    def scores(self, query, key):
        return query @ key.mT

    def pairs(self, query, key):
        return (query * key).sum(-1)


class Softmax(_Dot):
    r"""sim(q, k) = exp(scale · q·k), with scale 1/√d unless given.

    `scale` is the inverse temperature β of the textbooks. It may be a number, a tensor, or a tensor with one
    entry a head, and gets a gradient if it wants one.

    >>> import torch, heedful
    >>> q, k, v = torch.randn(3, 2, 5, 4)
    >>> soft = heedful.attend(q, k, v, similarity=heedful.Softmax(scale=0.0))
    >>> torch.allclose(soft, v.mean(-2, keepdim=True).expand_as(v), atol=1e-6)
    True
    """

    kind = "dot"

    def __init__(self, scale: float | Tensor | None = None):
        if isinstance(scale, (int, float)) and not math.isfinite(fixed(scale)):
            raise ValueError(
                f"Softmax(scale={scale}): scale must be finite; for the limit scale → ∞ use Argmax()."
            )
        if not isinstance(scale, (int, float, Tensor, type(None))):
            raise TypeError(
                f"Softmax(scale={scale!r}): takes a number, or a tensor with one entry or one a head."
            )
        if isinstance(scale, Tensor) and not scale.is_floating_point():
            raise TypeError(f"Softmax(scale=…): a tensor must be floating point, got {scale.dtype}.")
        if isinstance(scale, Tensor) and scale.dim() > 1:
            raise ValueError(
                f"Softmax(scale=…): got shape {tuple(scale.shape)}; give a scalar, or one entry a head."
            )
        self.scale = scale
        super().__init__(signature_of(scale))

    def resolved(self, dim: int):
        return dim**-0.5 if self.scale is None else self.scale

    def check(self, query_dim, key_dim, heads):
        super().check(query_dim, key_dim, heads)
        if (
            isinstance(self.scale, Tensor)
            and self.scale.dim() == 1
            and not broadcasts(self.scale.numel(), heads)
        ):
            raise ValueError(
                f"Softmax(scale=…): got {self.scale.numel()} entries for {heads} heads; "
                f"give a scalar or one a head."
            )

    def prepare(self, query, key):
        scale = per_head(self.resolved(query.shape[-1]))
        return query * (scale.to(query.dtype) if isinstance(scale, Tensor) else scale), key

    def __repr__(self):
        if self.scale is None:
            return "Softmax()"
        return f"Softmax(scale={'tensor' if isinstance(self.scale, Tensor) else short(self.scale)})"


class Argmax(_Dot):
    """The limit of `Softmax(scale=β)` as β → ∞: all attention on the best-matching key.

    Ties share, in proportion to exp(position). Queries and keys get exactly zero gradient; values do get one.

    >>> import torch, heedful
    >>> q, k = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    >>> heedful.attend(q, k, torch.tensor([[7.0], [8.0]]), similarity=heedful.Argmax())
    tensor([[7.]])
    """

    kind = "argmax"

    def __init__(self):
        super().__init__()

    def weigh(self, scores, bias, allowed):
        scores = scores.detach()
        silent = None if allowed is None else ~allowed
        if bias is not None:
            unheard = bias == -math.inf
            silent = unheard if silent is None else silent | unheard
        if silent is not None:
            scores = scores.masked_fill(silent, -math.inf)
        winners = (scores == row_top(scores)) & (scores > -math.inf)
        if bias is None:
            return winners.to(scores.dtype)
        bias = bias.masked_fill(~winners, -math.inf)
        return torch.exp(bias - row_top(bias))
