"""How the next token is chosen from its logits."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def distribution(
    logits: Tensor, *, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> Tensor:
    """softmax(logits / temperature), cut and rescaled: the chances tokens are drawn with, in float64.

    `top_k` keeps the k most probable tokens, then `top_p` the smallest set of what is left whose mass reaches
    p; the token that crosses p stays in. Temperature 0 is the limit: the most probable token is certain.

    >>> import torch
    >>> logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    >>> distribution(logits, top_p=0.6)
    tensor([0.6250, 0.3750, 0.0000, 0.0000], dtype=torch.float64)
    """
    check_sampling(temperature, top_k, top_p)
    logits = logits.double()
    if temperature == 0:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    # Subtracting first keeps tiny temperatures finite.
    chances = torch.softmax((logits - logits.amax(-1, keepdim=True)) / temperature, -1)
    if top_k is None and top_p is None:
        return chances
    ranked, order = chances.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ranked[..., top_k:] = 0
    if top_p is not None:
        before = ranked.cumsum(-1) - ranked
        ranked = ranked.masked_fill(before >= top_p * ranked.sum(-1, keepdim=True), 0)
    ranked = ranked / ranked.sum(-1, keepdim=True)
    return torch.zeros_like(chances).scatter_(-1, order, ranked)


def next_token(
    logits: Tensor,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    uniform: Tensor | None = None,
) -> Tensor:
    """A token for each row of logits, (..., vocabulary) → (...), drawn from their `distribution`.

    `uniform` holds a number in [0, 1) a row, which decides the draw; without it torch's generator does.

    >>> import torch
    >>> logits = torch.tensor([0.5, 0.3, 0.2]).log()
    >>> [int(next_token(logits, uniform=torch.tensor(u))) for u in (0.1, 0.4, 0.9)]
    [2, 1, 0]
    """
    if temperature == 0:
        check_sampling(temperature, top_k, top_p)
        return logits.argmax(-1)
    chances = distribution(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    if uniform is None:
        uniform = torch.rand(logits.shape[:-1], dtype=torch.float64, device=logits.device)
    # The first token to bring the sum to 1 − u, a number in (0, 1]; one of chance 0 is never the first.
    total = chances.cumsum(-1)
    return torch.searchsorted(total, (1 - uniform.double())[..., None] * total[..., -1:])[..., 0]


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
        raise TypeError(f"temperature={temperature!r}: takes a number.")
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature={temperature}: takes a finite number, 0 (greedy) or more.")
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise ValueError(f"top_k={top_k!r}: takes how many tokens to keep, 1 or more; None keeps all.")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p={top_p!r}: takes the mass to keep, in (0, 1]; None keeps all.")
