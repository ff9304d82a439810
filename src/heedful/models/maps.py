"""Who listens to whom in a stack of transformer blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..attention.weights import weigh


def attention_maps(blocks: Iterable[Any], x: Tensor) -> Tensor:
    """How much token i heeds token j, (layers, ..., heads, tokens, tokens), as x (..., tokens, dim) goes
    through the blocks; without dropout of the weights.
    """
    maps = []
    for block in blocks:
        attention = block.attention
        query, key, _ = attention.project(block.attention_norm(x) if block.order == "pre" else x)
        chosen = {"similarity": attention.similarity, "neighbors": attention.neighbors}
        maps.append(weigh(query, key, **chosen, position=attention.position))
        x = block(x)
    return torch.stack(maps)
