"""Edges grouped by listener: a heedful `Graph`, and its kernels."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ...attention.transforms import lasting
from ...graphs import Graph
from ...graphs.structure import Slots, Structure, index_dtype
from .edges import Edges

# Fewer edges than this are sorted sooner than the compiled loop is called for the first time.
MANY = 256
# So few numbers travel along edges sooner one by one than by a kernel, whose call takes some 100 µs.
FEW = 1 << 17


class GroupedEdges(Edges):
    """`Edges` by heedful's kernels. `graph` has the caller's edges that are left, in order, then loops."""

    def __init__(
        self,
        graph: Graph,
        *,
        given: int,
        loops: int | None = None,
        kept: Tensor | None = None,
        existing: Tensor | None = None,
    ):
        self.graph, self.given, self.loops = graph, given, loops
        self.targets = self.rows = graph.targets
        self.kept = kept  # numbers of the caller's edges that are no loops; None: all
        self.existing = existing  # number of the caller's loop at each node, −1 where there was none
        self._scales: dict[tuple[float, torch.dtype], Tensor] = {}

    # The graph makes these when first asked: attention does not need them.
    source = property(lambda self: self.graph.source)  # type: ignore[assignment]
    target = into = property(lambda self: self.graph.target)  # type: ignore[assignment]

    # What edges carry

    def _kept(self, given):
        return given if self.kept is None else given.index_select(0, self.kept)

    def _loop_weights(self, given, fill):
        filled = given.new_full((self.loops,), fill)
        if self.existing is None:
            return filled
        return torch.where(self.existing < 0, filled, given[self.existing.clamp(min=0)])

    def _reduce(self, values, kind):
        if kind == "mul":
            return super()._reduce(values, kind)
        return self._incoming.aggregate(values, "sum" if kind == "add" else kind)

    @cached_property
    def _incoming(self) -> Graph:
        """Each node hears the edges into it, loops left out: edges are the sources of this graph."""
        with lasting(*self.graph.structure.forward):
            rowptr, _, edge = self.graph.structure.forward
            edges = self.graph.edges - (self.loops or 0)
            loops_before = torch.arange(len(rowptr), device=rowptr.device).clamp(max=self.loops or 0)
            edge = edge[edge < edges]
            every = torch.arange(edges + 1, dtype=edge.dtype, device=edge.device)
            forward = Slots((rowptr - loops_before).to(rowptr.dtype), edge, edge)
            backward = Slots(every, self.target[:edges].to(edge.dtype), every[:-1])
            return Graph(Structure(forward, edges, backward=backward))

    # Listening

    def scale(self, weight, power, dtype):
        if weight is not None or torch.compiler.is_compiling():
            return super().scale(weight, power, dtype)
        if (power, dtype) not in self._scales:
            wide = torch.promote_types(dtype, torch.float32)  # bfloat16 cannot count past 256
            with lasting(*self.graph.structure.forward):
                self._scales[power, dtype] = super().scale(None, power, wide).to(dtype)
        return self._scales[power, dtype]

    def _degree(self, weight, dtype):
        if weight is None:
            return self.graph.degree().to(dtype)
        return self.graph.with_edges(weight=weight).degree(weighted=True)

    def propagate(self, x, weight):
        # Elsewhere adding by index is not deterministic, and half precision should be summed in float32.
        plain = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
        if plain and self.graph.edges * x.numel() <= FEW * self.graph.sources:
            return super().propagate(x, weight)
        return self.graph.with_edges(weight=weight).propagate(x)

    def aggregate(self, x, kind):
        if kind in ("sum", "mean"):
            return super().aggregate(x, kind)
        return self.graph.aggregate(x, "std").square() if kind == "var" else self.graph.aggregate(x, kind)


def group(edge_index: Tensor, sources: int, targets: int, loops: int | None) -> GroupedEdges:
    """Sort the edges into a graph, loops treated. It holds no view of edge_index, which is to die freely."""
    with lasting(edge_index):
        source, target = edge_index[0].long(), edge_index[1].long()
        given, kept, existing = len(source), None, None
        if loops is not None:
            looped = source == target
            if looped.any():
                kept, number = ((~looped).nonzero().squeeze(1), looped.nonzero().squeeze(1))
                existing = torch.full((loops,), -1, device=source.device)
                existing = existing.scatter_reduce(0, source[number], number, "amax")  # of several, the last
                source, target = source[kept], target[kept]
            every = torch.arange(loops, device=source.device)
            source, target = torch.cat([source, every]), torch.cat([target, every])
        graph = Graph(_structure(source, target, sources, targets))
    return GroupedEdges(graph, given=given, loops=loops, kept=kept, existing=existing)


def _structure(source: Tensor, target: Tensor, sources: int, targets: int) -> Structure:
    edges = len(source)
    if source.device.type != "cpu" or edges < MANY:
        return Structure.from_edges(source, target, sources, targets)

    from ...kernels.group_numba import group_edges

    dtype = index_dtype(sources, targets, edges)
    rowptr, colptr = torch.zeros(targets + 1, dtype=dtype), torch.zeros(sources + 1, dtype=dtype)
    col, edge, row, edge_transposed = (torch.empty(edges, dtype=dtype) for _ in range(4))
    slots = (rowptr, col, edge, colptr, row, edge_transposed)
    group_edges(source.contiguous().numpy(), target.contiguous().numpy(), *(slot.numpy() for slot in slots))
    return Structure(Slots(rowptr, col, edge), sources, backward=Slots(colptr, row, edge_transposed))
