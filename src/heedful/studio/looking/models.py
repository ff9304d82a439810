"""Transformers with another similarity or other neighbors, their weights as they were trained."""

from __future__ import annotations

import copy
from typing import Any

from .seen import Call
from .view import View


def changed(model: Any, view: View, neighbors: Any, length: int) -> tuple[Any, Call]:
    """The model as the view wants it, and what one of its layers calls; None leaves the neighbors."""
    first = model.blocks[0].attention
    similarity = view.similar(first.similarity, first.head_dim**-0.5)
    neighbors = first.neighbors if neighbors is None else neighbors
    if similarity is not first.similarity or neighbors is not first.neighbors:
        model = copy.deepcopy(model)
        for block in model.blocks:
            own = block.attention
            own._take("Attention", view.similar(own.similarity, own.head_dim**-0.5))
            own.neighbors = neighbors
    return model, Call(first.heads, length, first.head_dim, similarity, neighbors, first.position)
