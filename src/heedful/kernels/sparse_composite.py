"""Sparse attention in plain torch: slow, differentiable to any order, the judge of the kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .dropout import keep_mask, kept_scale

if TYPE_CHECKING:
    from .sparse import Structure


def sparse_composite(
    kind: str,
    q: Tensor | None,
    k: Tensor | None,
    v: Tensor,
    structure: Structure,
    *,
    a: Tensor | None = None,
    bias: Tensor | None = None,
    weight: Tensor | None = None,
    key: Tensor | None = None,
    value: Tensor | None = None,
    slope: float = 0.2,
    degree: int = 2,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    implied: bool = False,
) -> Tensor:
    """`sparse_attention` by gathering every edge: any device, any derivative, E·H·d memory."""
    N, j, e = structure.rowptr.shape[0] - 1, structure.col.long(), structure.edge.long()
    M, H, _ = v.shape
    i = torch.repeat_interleave(
        torch.arange(N, device=v.device), structure.rowptr.long().diff(), output_size=j.shape[0]
    )
    base, logit = v.new_ones((j.shape[0], H)), v.new_zeros((j.shape[0], H))  # (E, H)
    if kind != "uniform":
        x, y = q[i], k[j] if key is None else k[j] + key[e]  # (E, H, dk)
        if kind == "dot":
            logit = (x * y).sum(-1)
        elif kind == "power":
            base = (x * y).sum(-1) ** degree
        else:
            s = torch.where(x + y > 0, x + y, slope * (x + y))
            logit = s.squeeze(-1) if kind == "additive" else (a * s).sum(-1)
    if bias is not None:
        logit = logit + bias[e]
    if weight is not None:
        base = base * weight[e]
    heard = torch.where(base == 0, -torch.inf, logit).detach()
    m = heard.new_full((N, H), -torch.inf).scatter_reduce(0, i.unsqueeze(-1).expand(-1, H), heard, "amax")
    m = torch.where(m == -torch.inf, 0, m)
    # An edge of weight 0 is no part of the maximum; its exp must not become inf, for inf · 0 is NaN.
    shifted = logit - m[i]
    p = base * torch.where(base == 0, shifted.clamp(max=80), shifted).exp()
    z = v.new_zeros((N, H)).index_add(0, i, p)
    if dropout:
        each = H // seed.shape[0]
        counter = (i * M + j if implied else e).unsqueeze(-1)
        head = torch.arange(H, device=v.device)
        p = p * keep_mask(seed[head // each], head % each, counter, dropout) * kept_scale(dropout)
    heard_value = v[j] if value is None else v[j] + value[e]  # (E, H, dv)
    total = torch.zeros_like(v[:1]).expand(N, -1, -1).index_add(0, i, p.unsqueeze(-1) * heard_value)
    empty = (z == 0).unsqueeze(-1)
    return torch.where(empty, 0, total / torch.where(empty, 1, z.unsqueeze(-1)))
