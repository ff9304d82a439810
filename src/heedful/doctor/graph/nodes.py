"""Nodes of a graph, what they kept, and the way from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor

LIMIT = 20_000  # nodes looked at
THROUGH = (
    "ViewBackward0",
    "UnsafeViewBackward0",
    "ReshapeAliasBackward0",
    "SqueezeBackward",
    "UnsqueezeBackward",
    "ToCopyBackward",  # autocast puts them everywhere
    "CloneBackward",
    "AliasBackward",
)


def saved(node, name: str) -> Any:
    """What a node kept, or None: it may be freed, changed since, or not of this kind."""
    try:
        return getattr(node, f"_saved_{name}", None)
    except RuntimeError:
        return None


def walk(root) -> list:
    """Every node behind `root`, nearest first."""
    seen, found, at = {root}, [root], 0
    while at < len(found) and len(found) < LIMIT:
        for node, _ in found[at].next_functions:
            if node is not None and node not in seen:
                seen.add(node)
                found.append(node)
        at += 1
    return found


def inputs(node) -> list:
    return [entry for entry, _ in node.next_functions if entry is not None]


def shape_of(node) -> tuple[int, ...]:
    """The shape of what a node gave, () where it is not known."""
    known = getattr(node, "_input_metadata", None)
    return tuple(int(size) for size in known[0].shape) if known else ()


def through(node, *names: str):
    """The first node behind this one that does more than reshape."""
    while node is not None and node.name().startswith(names or THROUGH):
        behind = inputs(node)
        node = behind[0] if behind else None
    return node


def nearest(node, names: dict[int, str]) -> str:
    """The name of the first parameter behind a node."""
    seen, queue = {node}, [node]
    while queue and len(seen) < 200:
        at = queue.pop(0)
        if hasattr(at, "variable") and id(at.variable) in names:
            return names[id(at.variable)].rpartition(".")[0] or names[id(at.variable)]
        for entry in inputs(at):
            if entry not in seen:
                seen.add(entry)
                queue.append(entry)
    return ""


def units_axis(node, dims: int) -> int:
    """Which axis of an activation holds its units: channels behind a convolution, else the last."""
    for _ in range(4):
        behind = inputs(node)
        if not behind or "Backward" not in behind[0].name():
            break
        node = behind[0]
        if node.name().startswith("Convolution"):
            return 1
        if node.name().startswith(("Addmm", "Mm", "UnsafeView", "Bmm", "View")):
            break
    return dims - 1


def first_tensor(output: Any) -> tuple[Tensor | None, Callable[[Any], Tensor]]:
    """The first tensor of floats in an output, and how to get there again; a loss where nothing else is."""
    if isinstance(output, Tensor):
        return (output if output.is_floating_point() else None), lambda out: out
    if hasattr(output, "logits") and isinstance(output.logits, Tensor):
        return output.logits, lambda out: out.logits
    entries: Iterable = output.items() if isinstance(output, dict) else ()
    if isinstance(output, (tuple, list)):
        entries = enumerate(output)
    floats = [(key, t) for key, t in entries if isinstance(t, Tensor) and t.is_floating_point()]
    if not floats:
        return None, lambda out: out
    key, tensor = next(((key, t) for key, t in floats if t.dim()), floats[0])
    return tensor, lambda out: out[key]
