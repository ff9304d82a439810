"""Turn what the caller passed into tensors, or say which argument is wrong, where and why."""

from __future__ import annotations

import operator

import torch
from torch import Tensor

# The dimension of each edge attribute that counts the edges.
EDGE_DIMENSION = {"weight": -1, "bias": -1, "key": -2, "value": -2}


def tensor_of(name: str, given, what: str, *, where: str) -> Tensor:
    """A tensor out of a list, an array or a tensor of numbers."""
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{where}: {name} must hold {what}, got {given!r:.60}.") from None


def indices(name: str, given, *, where: str) -> Tensor:
    """A 1-d int64 tensor out of a list, an array or a tensor of whole numbers."""
    tensor = tensor_of(name, given, "whole numbers (node indices)", where=where)
    if tensor.numel() == 0 and not isinstance(given, Tensor):
        tensor = tensor.long()  # torch reads [] as floats
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"{where}: {name} must hold whole numbers (node indices), got {tensor.dtype}.")
    if tensor.dim() != 1:
        raise ValueError(f"{where}: {name} must be one-dimensional, got shape {tuple(tensor.shape)}.")
    return tensor.long()


def within(name: str, index: Tensor, count: int, *, where: str, of: str) -> None:
    """Every index lies in 0 … count − 1. A compiler cannot look, and takes the caller's word."""
    if torch.compiler.is_compiling() or index.numel() == 0:
        return
    low, high = torch.aminmax(index)
    if low < 0 or high >= count:
        at = int(((index < 0) | (index >= count)).nonzero()[0])
        valid = f"0 to {count - 1}" if count else "none at all"
        raise ValueError(
            f"{where}: {name}[{at}] is {int(index[at])}, but with {count} {of} the valid indices are {valid}."
        )


def attribute(name: str, given, edges: int, device: torch.device, *, where: str) -> Tensor | None:
    """An edge attribute whose edge dimension fits the graph."""
    if given is None:
        return None
    tensor = tensor_of(name, given, "numbers", where=where)
    dimension = EDGE_DIMENSION[name]
    shape = (
        "(edges,) or (..., heads, edges)" if dimension == -1 else "(edges, dim) or (..., heads, edges, dim)"
    )
    if not tensor.is_floating_point():
        raise TypeError(f"{where}: {name} must be floating point, got {tensor.dtype}.")
    if tensor.dim() < -dimension or tensor.shape[dimension] != edges:
        raise ValueError(
            f"{where}: {name} has shape {tuple(tensor.shape)}, but the graph has {edges} edges; "
            f"it takes {shape}."
        )
    if tensor.device != device:
        raise ValueError(
            f"{where}: {name} is on {tensor.device}, the graph on {device}; "
            "move one of them (graph.to(device))."
        )
    return tensor


def count(name: str, given, *, where: str) -> int:
    """A number of nodes."""
    if isinstance(given, torch.SymInt):  # a compiler's number, not known yet
        return given  # type: ignore[return-value]
    number = whole(given)
    if number is None:
        raise TypeError(f"{where}: {name} must be a whole number, got {given!r}.")
    if number < 0:
        raise ValueError(f"{where}: {name} must not be negative, got {number}.")
    return number


def whole(given) -> int | None:
    """The whole number that is given, numpy's and torch's included; None if it is none."""
    if isinstance(given, int):
        return None if isinstance(given, bool) else given
    try:
        return operator.index(given)
    except TypeError:
        return None


def choice(name: str, given, valid, *, where: str) -> None:
    """One of the known names."""
    if given not in valid:
        raise ValueError(f"{where}: {name} is {given!r}; it takes one of {', '.join(map(repr, valid))}.")


def features(x, nodes: int, device: torch.device, *, where: str) -> None:
    """x is (..., sources, features), floating, on the graph's device."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{where}: x must be a floating point tensor, got {got}.")
    if x.dim() < 2 or x.shape[-2] != nodes:
        raise ValueError(
            f"{where}: x has shape {tuple(x.shape)}, but the graph has {nodes} speaking nodes; "
            f"it takes (..., {nodes}, features)."
        )
    if x.device != device:
        raise ValueError(
            f"{where}: x is on {x.device}, the graph on {device}; move one of them (graph.to(device))."
        )
