"""What a call must look like, and what to say when it does not."""

from __future__ import annotations

import torch
from torch import Tensor

from .neighbors import Neighbors
from .position import Position
from .similarity import Similarity
from .transforms import broadcasts


def check_call(query, key, value, similarity, neighbors, position) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, Tensor):
            raise TypeError(f"attend(): {name} must be a tensor, got {type(x).__name__}.")
        if not x.is_floating_point():
            raise TypeError(
                f"attend(): {name} is {x.dtype}; it must be floating point. Convert it with {name}.float()."
            )
        if x.dim() < 2:
            raise ValueError(
                f"attend(): {name} has shape {tuple(x.shape)}; "
                f"it takes (..., heads, length, dim), or (length, dim)."
            )
        if x.device != query.device:
            raise ValueError(
                f"attend(): {name} is on {x.device}, query on {query.device}; move them together."
            )
        if x.dtype != query.dtype:
            raise TypeError(f"attend(): {name} is {x.dtype}, query is {query.dtype}; they must agree.")
        if x.dim() != query.dim() and min(x.dim(), query.dim()) == 2:
            raise ValueError(
                f"attend(): {name} has shape {tuple(x.shape)}, query {tuple(query.shape)}; "
                f"either all have a heads dimension or none."
            )
    if not isinstance(similarity, Similarity):
        hint = " Wrap a function as ScoreFunction(fn)." if callable(similarity) else ""
        raise TypeError(
            f"attend(): similarity must be a Similarity such as Softmax(), got {similarity!r}.{hint}"
        )
    if not isinstance(neighbors, Neighbors):
        raise TypeError(f"attend(): neighbors must be a Neighbors or a Graph, got {neighbors!r}.")
    if position is not None and not isinstance(position, Position):
        raise TypeError(f"attend(): position must be a Position such as Relative(table), got {position!r}.")
    _check_shapes(query, key, value)
    heads = query.shape[-3] if query.dim() > 2 else 1
    similarity.check(query.shape[-1], key.shape[-1], heads)
    neighbors.check(query.shape[-2], key.shape[-2], heads)
    _check_carried(neighbors, query, key, value, heads)
    # On the meta device only shapes matter; a compiler finds out by itself, and reads no names.
    if query.device.type != "meta" and not torch.compiler.is_compiling():
        _check_devices(query.device, similarity, neighbors, position)


def _check_devices(device, similarity: Similarity, neighbors: Neighbors, position: Position | None) -> None:
    held = [(f"{similarity}: {name}", x.device) for name, x in _tensors(similarity)]
    # A table comes along by itself, if there are numbers in it.
    held += [(f"{position}: {name}", x.device) for name, x in _tensors(position) if x.device.type == "meta"]
    held += [(str(graph), graph.device) for graph in neighbors.graphs()]
    for name, where in held:
        if where != device:
            raise ValueError(f"attend(): {name} is on {where}, query on {device}; move them together.")


def _tensors(owner) -> list[tuple[str, Tensor]]:
    own = {} if owner is None else vars(owner)
    return [(name, x) for name, x in own.items() if isinstance(x, Tensor) and x.dim()]


def _check_shapes(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.shape[-1] == 0:
            raise ValueError(
                f"attend(): {name} has shape {tuple(x.shape)}; its last dimension must not be 0."
            )
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"attend(): key has length {key.shape[-2]}, value {value.shape[-2]}; they must match."
        )
    if query.dim() == 2:
        return
    heads, key_heads, value_heads = query.shape[-3], key.shape[-3], value.shape[-3]
    if heads == 0 or key_heads == 0:
        raise ValueError(
            f"attend(): query has {heads} heads and key {key_heads}; there must be at least one."
        )
    if key_heads != value_heads:
        raise ValueError(f"attend(): key has {key_heads} heads, value {value_heads}; they must match.")
    if heads % key_heads:
        raise ValueError(
            f"attend(): query has {heads} heads, key {key_heads}; the first must be a multiple of the second."
        )
    lead = [(name, tuple(x.shape[:-3])) for name, x in (("query", query), ("key", key), ("value", value))]
    for (name, shape), (other, against) in ((lead[1], lead[0]), (lead[2], lead[0]), (lead[2], lead[1])):
        if not _broadcast(shape, against):
            raise ValueError(
                f"attend(): {name} has leading dimensions {shape}, {other} {against}; "
                f"they must match or be 1."
            )


def _broadcast(shape: tuple[int, ...], against: tuple[int, ...]) -> bool:
    shared = min(len(shape), len(against))
    pairs = zip(shape[len(shape) - shared :], against[len(against) - shared :], strict=True)
    return not [a for a, b in pairs if a != b and a != 1 and b != 1]


def _check_carried(neighbors: Neighbors, query: Tensor, key: Tensor, value: Tensor, heads: int) -> None:
    """The tensors a pattern is made of: before their own dimensions they broadcast to (..., heads)."""
    whole = (*layout(query, key, value)[0], heads)
    widths = {"edge key": key.shape[-1], "edge value": value.shape[-1]}
    for name, tensor, own in neighbors.carried():
        lead = tuple(tensor.shape[: tensor.dim() - own])
        before = len(whole) - len(lead)
        if before < 0 or not all(map(broadcasts, lead, whole[before:])):
            raise ValueError(
                f"attend(): {name} of shape {tuple(tensor.shape)} has {lead} before its last {own}; "
                f"the call has {whole} (leading dimensions and heads), and each must match or be 1."
            )
        if name in widths and tensor.shape[-1] != widths[name]:
            side = name.removeprefix("edge ")
            raise ValueError(
                f"attend(): {name} of shape {tuple(tensor.shape)} is {tensor.shape[-1]} wide, {side} "
                f"{widths[name]}; one is added to the other, so they must match."
            )
        if tensor.device != query.device and query.device.type != "meta":
            raise ValueError(
                f"attend(): {name} is on {tensor.device}, query on {query.device}; move them together."
            )


def layout(query: Tensor, key: Tensor, value: Tensor) -> tuple[tuple[int, ...], int, int]:
    """Leading dimensions (broadcast), heads and key heads."""
    if query.dim() == 2:
        return (), 1, 1
    lead: list[int] = []
    for shape in (query.shape[:-3], key.shape[:-3], value.shape[:-3]):
        for place, extent in enumerate(reversed(shape)):
            if place == len(lead):
                lead.append(extent)
            elif lead[place] == 1:
                lead[place] = extent
    return tuple(reversed(lead)), query.shape[-3], key.shape[-3]


def check_dropout(dropout: float) -> None:
    if not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:  # nor is NaN
        raise ValueError(f"attend(): dropout={dropout!r}; it must lie in [0, 1).")


def check_exact(exact: bool) -> None:
    if not isinstance(exact, bool):
        raise TypeError(f"attend(): exact={exact!r}; it takes True or False.")
