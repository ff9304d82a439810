"""What edges carry (weight, bias, key, value), moved along when edges are chosen, joined or added."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .check import EDGE_DIMENSION

Attributes = dict[str, Tensor]


def select(attributes: Attributes, edges: Tensor) -> Attributes:
    """The attributes of some edges, by number."""
    return {name: t.index_select(EDGE_DIMENSION[name], edges) for name, t in attributes.items()}


def concatenate(parts: Sequence[Attributes], *, where: str) -> Attributes:
    """The attributes of the edges of all parts in turn. All must carry the same ones, of the same kind."""
    joined = {}
    for name, dimension in EDGE_DIMENSION.items():
        having = [i for i, part in enumerate(parts) if name in part]
        if not having:
            continue
        if len(having) < len(parts):
            missing = next(i for i in range(len(parts)) if i not in having)
            raise ValueError(
                f"{where}: graph {having[0]} has {name} and graph {missing} has not; "
                f"give it one, or drop it from all (with_edges({name}=None))."
            )
        tensors = [part[name] for part in parts]
        shapes = {(*t.shape[:dimension], *t.shape[dimension:][1:]) for t in tensors}
        if len(shapes) > 1:
            shown = ", ".join(sorted(str(tuple(t.shape)) for t in tensors))
            raise ValueError(
                f"{where}: {name} must agree in all but the number of edges, got shapes {shown}."
            )
        joined[name] = torch.cat(tensors, dimension)
    return joined


def extend(attributes: Attributes, more: int, fill: dict[str, float]) -> Attributes:
    """The attributes with `more` edges after the existing ones, filled with the number given for each."""
    extended = {}
    for name, t in attributes.items():
        dimension = EDGE_DIMENSION[name]
        shape = list(t.shape)
        shape[dimension] = more
        extended[name] = torch.cat([t, t.new_full(shape, fill[name])], dimension)
    return extended
