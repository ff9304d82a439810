"""What attention weights say about distance, and about which inputs reach the output."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def attention_distance(weights: Tensor, places: Tensor | None = None) -> Tensor:
    """Σ_j α_ij ‖place_i − place_j‖, averaged over listeners: how far a head looks.

    weights (..., N, M) give (...); places (N, dimensions) default to 0, 1, 2 … With fewer listeners than
    speakers they are the last ones. Listeners who hear nobody do not count.

    >>> attention_distance(torch.eye(3))
    tensor(0.)
    >>> attention_distance(torch.full((2, 2), 0.5))
    tensor(0.5000)
    """
    listeners, speakers = weights.shape[-2:]
    if places is None:
        places = torch.arange(speakers, device=weights.device).unsqueeze(1)
    if places.dim() != 2 or len(places) != speakers:
        raise ValueError(
            f"attention_distance(): places have shape {tuple(places.shape)}; there are {speakers} speakers, "
            f"so they take ({speakers}, dimensions)."
        )
    places = places.to(weights.dtype)
    distance = torch.cdist(places[speakers - listeners :], places)
    mass = weights.sum(-1)
    far = (weights * distance).sum(-1) / mass.clamp_min(torch.finfo(weights.dtype).tiny)
    heard = mass > 0
    return (far * heard).sum(-1) / heard.sum(-1).clamp_min(1)


def attention_rollout(layers: Sequence[Tensor], *, residual: float = 0.5) -> Tensor:
    """Π_l (residual · I + (1 − residual) · mean over heads of α_l), rows summing to one.

    Abnar & Zuidema, 2020. Layers hold (..., heads, N, N), the first one first; entry (i, j) of the result is
    how much of input j is in output i.

    >>> attention_rollout([torch.eye(2).unsqueeze(0)])
    tensor([[1., 0.],
            [0., 1.]])
    """
    if not layers:
        raise ValueError("attention_rollout(): no layers.")
    if not 0 <= residual <= 1:
        raise ValueError(f"attention_rollout(): residual is {residual}; it is a share, 0 to 1.")
    total = None
    for weights in layers:
        if weights.shape[-1] != weights.shape[-2]:
            raise ValueError(f"attention_rollout(): weights of shape {tuple(weights.shape)} are not square.")
        same = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
        mixed = residual * same + (1 - residual) * weights.mean(-3)
        mixed = mixed / mixed.sum(-1, keepdim=True)
        total = mixed if total is None else mixed @ total
    assert total is not None
    return total
