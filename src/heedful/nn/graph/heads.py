"""Heads side by side in a row of features, or one above the other as `attend` takes them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def split(z: Tensor, heads: int) -> Tensor:
    """(..., nodes, heads · dim) → (..., heads, nodes, dim)"""
    return z.unflatten(-1, (heads, -1)).transpose(-2, -3)


def merge(out: Tensor, concat: bool) -> Tensor:
    """(..., heads, nodes, dim) → (..., nodes, heads · dim), or their mean, (..., nodes, dim)."""
    return out.transpose(-2, -3).flatten(-2) if concat else out.mean(-3)


def scores(z: Tensor, *vectors: Tensor) -> list[Tensor]:
    """a·z of every head, for each vector a (heads or 1, dim): from (..., nodes, heads · dim) to
    (..., heads, nodes, 1), by one product with a matrix that has the vectors on its diagonal.
    """
    dim = vectors[0].shape[-1]
    heads = z.shape[-1] // dim
    across = torch.eye(heads, dtype=z.dtype, device=z.device).view(heads, 1, 1, heads)
    stacked = torch.stack([a.expand(heads, dim) for a in vectors], -1).unsqueeze(
        -1
    )  # (heads, dim, vectors, 1)
    found = z @ (stacked * across).view(heads * dim, -1)
    return [part.unsqueeze(-1).transpose(-2, -3) for part in found.split(heads, -1)]


def options(layer: nn.Module, **usual) -> list[str]:
    """The options of a layer that are not as usual, for its repr."""
    given = {name: getattr(layer, name) for name in usual}
    return [f"{name}={value!r}" for name, value in given.items() if value != usual[name]]
