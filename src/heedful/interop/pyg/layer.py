"""What the layers share: the options of PyG's MessagePassing, and what their inputs must look like."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from ...graphs import Graph, check
from .edges import Edges
from .find import find_edges

Pair = Tensor | tuple[Tensor, Tensor | None]


class Layer(nn.Module):
    """The base of the drop-ins. It is no MessagePassing: no `message`, no `propagate`, no hooks of PyG's."""

    aggregations: tuple[str, ...] = ("add", "sum")

    def __init__(
        self,
        aggr: str | list[str] = "add",
        *,
        aggr_kwargs: dict[str, Any] | None = None,
        flow: str = "source_to_target",
        node_dim: int = -2,
        decomposed_layers: int = 1,
    ):
        super().__init__()
        name = type(self).__name__
        for kind in aggr if isinstance(aggr, (list, tuple)) else [aggr]:
            if kind not in self.aggregations:
                known = ", ".join(map(repr, self.aggregations))
                raise NotImplementedError(
                    f"{name}: aggr is {kind!r}; this layer has {known}. For others keep PyG's own layer."
                )
        check.choice("flow", flow, ("source_to_target", "target_to_source"), where=name)
        if flow != "source_to_target":
            raise NotImplementedError(
                f"{name}: flow='target_to_source' is not supported; turn the edges round, edge_index.flip(0)."
            )
        if aggr_kwargs:
            raise NotImplementedError(f"{name}: aggr_kwargs is not supported, got {aggr_kwargs!r}.")
        if node_dim != -2:
            raise NotImplementedError(f"{name}: node_dim must be -2, got {node_dim}; transpose x instead.")
        if decomposed_layers != 1:
            raise NotImplementedError(f"{name}: decomposed_layers must be 1, got {decomposed_layers}.")
        self.aggr, self.flow = aggr, flow

    def _edges(
        self, edge_index: Tensor | Graph, x: Tensor, sources: int, targets: int, *, loops: bool = False
    ) -> Edges:
        """The edges between so many nodes; with `loops`, self-loops are replaced by one for each node that is
        both source and target.
        """
        count = (sources if sources == targets else min(sources, targets)) if loops else None
        return find_edges(edge_index, x.device, sources, targets, count, where=type(self).__name__)

    def _check_edge_input(self, name: str, given: Tensor, edges: Edges) -> Tensor:
        where = type(self).__name__
        if not isinstance(given, Tensor) or not given.is_floating_point():
            got = given.dtype if isinstance(given, Tensor) else type(given).__name__
            raise TypeError(f"{where}: {name} must be a floating point tensor, got {got}.")
        if given.dim() == 0 or given.shape[0] != edges.given:
            raise ValueError(
                f"{where}: {name} has shape {tuple(given.shape)}, but there are {edges.given} edges; "
                "it takes one row an edge."
            )
        return given

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels})"


def check_channels(in_channels, out_channels: int, where: str) -> tuple[int, int]:
    """Inputs of sources and targets, −1 where they are to be seen at the first call."""
    pair = tuple(in_channels) if isinstance(in_channels, (tuple, list)) else (in_channels, in_channels)
    fits = len(pair) == 2 and all(isinstance(n, int) and (n == -1 or n > 0) for n in pair)
    if not fits:
        raise ValueError(
            f"{where}: in_channels is {in_channels!r}; it takes a positive number, -1 (see at the first "
            "call), or a pair of them (sources, targets)."
        )
    if not isinstance(out_channels, int) or out_channels < 1:
        raise ValueError(f"{where}: out_channels must be a positive number, got {out_channels!r}.")
    return pair


def split_pair(
    x: Pair, where: str, in_channels: int | tuple[int, int], *, leading: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Features of sources and targets: one tensor is both, and of a pair the second may be None.

    They are (nodes, features); with `leading`, other dimensions may stand before.
    """
    if not isinstance(x, (Tensor, tuple, list)):
        raise TypeError(f"{where}: x must be a tensor, or a pair (sources, targets), got {type(x).__name__}.")
    pair = (x, x) if isinstance(x, Tensor) else tuple(x)
    if len(pair) != 2:
        raise ValueError(
            f"{where}: x has {len(pair)} entries; it takes a tensor, or a pair (sources, targets)."
        )
    source, target = cast("tuple[Tensor, Tensor | None]", pair)
    widths = in_channels if isinstance(in_channels, (tuple, list)) else (in_channels, in_channels)
    parts = (source, source if target is None else target)
    names = ("x", "x") if isinstance(x, Tensor) else ("x[0]", "x[1]")
    for name, part in zip(names, parts, strict=True):
        if not isinstance(part, Tensor) or part.dim() < 2 or (part.dim() > 2 and not leading):
            got = f"shape {tuple(part.shape)}" if isinstance(part, Tensor) else type(part).__name__
            raise ValueError(f"{where}: {name} must be ({'..., ' * leading}nodes, features), got {got}.")
    for name, given, width in zip(names, (source, target), widths, strict=True):
        if given is None:
            continue
        if not given.is_floating_point():
            raise TypeError(f"{where}: {name} must be a floating point tensor, got {given.dtype}.")
        if given.shape[-1] != width and width != -1:  # -1: to be seen at the first call
            raise ValueError(f"{where}: {name} has {given.shape[-1]} features; the layer takes {width}.")
    return source, target


def count_nodes(source: Tensor, target: Tensor | None, size, where: str) -> tuple[int, int]:
    """How many sources and targets there are. Without targets in x `size` says it, or there are as many."""
    sources = source.shape[-2]
    heard, listening = (None, None) if size is None else tuple(size)
    targets = (sources if listening is None else listening) if target is None else target.shape[-2]
    if heard not in (None, sources) or listening not in (None, targets):
        raise ValueError(
            f"{where}: size is {tuple(size)}, but x has {sources} sources and {targets} targets; let it "
            "agree, or leave it out."
        )
    return sources, targets


def narrower_first(x: Tensor, before: int, after: int) -> bool:
    """Whether to add up along edges before the product with a (before, after) matrix, or after it.

    The sum is the same. What counts is how wide the rows are that travel, there and, where a gradient is
    wanted, back; before the product that is only so if x itself wants one.
    """
    training = torch.is_grad_enabled()
    return before * (1 + (training and x.requires_grad)) <= after * (1 + training)
