"""Who listens to whom: edges grouped by listener (CSR), and by speaker (its transpose) once someone asks.

Slot s of row i, rowptr[i] ≤ s < rowptr[i+1], says: i listens to col[s], over the caller's edge number
edge[s]. Slots of a row are sorted by source, equal sources by edge number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..kernels.batching import aside
from ..kernels.compiling import transformed


class Slots(NamedTuple):
    """Edges grouped by one end: where each row begins, then the other end and the number of each slot."""

    rowptr: Tensor
    col: Tensor
    edge: Tensor

    def to(self, device) -> Slots:
        """The same slots on another device."""
        return Slots(*(tensor.to(device) for tensor in self))


class Structure:
    """The connections of a graph without attributes; shared by graphs that differ only in those."""

    def __init__(self, forward: Slots, sources: int, *, backward: Slots | None = None):
        self.forward = forward
        self.targets = forward.rowptr.shape[0] - 1
        self.sources = sources
        self.edges = forward.col.shape[0]
        self._backward = backward
        self._ends: tuple[Tensor, Tensor] | None = None
        self._looped: Structure | None = None
        self.remembered: dict[str, Any] = {}  # what others have worked out of it

    @classmethod
    def from_edges(cls, source: Tensor, target: Tensor, sources: int, targets: int) -> Structure:
        """Group edges by target. The indices must be valid already."""
        return cls(group(target, source, targets, sources), sources)

    @property
    def backward(self) -> Slots:
        """The transpose: edges grouped by source."""
        if self._backward is not None:
            return self._backward
        with lasting(*self.forward):
            found = transpose(self.forward, self.sources)
        if real(found.rowptr):
            self._backward = found
        return found

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Source and target of each edge, int64, in the caller's order."""
        if self._ends is not None:
            return self._ends
        _, col, edge = self.forward
        with lasting(*self.forward):
            source, target = (torch.empty_like(col, dtype=torch.int64) for _ in range(2))
            source[edge] = col.long()
            target[edge] = row_of_slot(self.forward)
        if real(source):
            self._ends = source, target
        return source, target

    @property
    def looped(self) -> Structure:
        """The same with an edge i→i for every target i that has none, numbered after the others."""
        if self._looped is None:
            source, target = self.ends
            with lasting(*self.forward):
                lacking = torch.ones(self.targets, dtype=torch.bool, device=source.device)
                lacking[target[source == target]] = False
                loops = lacking.nonzero().squeeze(1)
                ends = torch.cat([source, loops]), torch.cat([target, loops])
                self._looped = Structure.from_edges(*ends, self.sources, self.targets)
        return self._looped

    @property
    def knows_loops(self) -> bool:
        """Whether `looped` is known already."""
        return self._looped is not None

    def reverse(self) -> Structure:
        """Every edge turned round: speakers listen."""
        return Structure(self.backward, self.targets, backward=self.forward)

    def to(self, device) -> Structure:
        """The same connections on another device."""
        backward = None if self._backward is None else self._backward.to(device)
        return Structure(self.forward.to(device), self.sources, backward=backward)


def lasting(*given: Tensor) -> AbstractContextManager:
    """Around tensors made once of these and kept: made in inference mode, they could never take part in
    training; made under a transform of torch.func's, in nothing else.
    """
    return nullcontext() if torch.compiler.is_compiling() else _lasting(*given)


@contextmanager
def _lasting(*given: Tensor) -> Iterator[None]:
    with torch.inference_mode(False), aside(*given):
        yield


def real(tensor: Tensor) -> bool:
    """Not a stand-in of torch.export or of a function transform that is compiled, which must not outlive
    these.
    """
    return not transformed() if torch.compiler.is_dynamo_compiling() else type(tensor) is Tensor


def group(row: Tensor, col: Tensor, rows: int, cols: int) -> Slots:
    """Sort edges by (row, col, edge number) and say where each row begins."""
    if rows * cols < 2**63:
        edge = torch.argsort(row * cols + col, stable=True)
    else:
        edge = torch.argsort(col, stable=True)
        edge = edge[torch.argsort(row[edge], stable=True)]
    dtype = index_dtype(rows, cols, row.shape[0])  # len() would fix the number for a compiler
    return Slots(pointers(occurrences(row, rows), dtype), col[edge].to(dtype), edge.to(dtype))


def transpose(slots: Slots, cols: int) -> Slots:
    """Group by the other end. A stable sort by col alone suffices: the slots come sorted by row."""
    order = torch.argsort(slots.col, stable=True)
    dtype = slots.rowptr.dtype
    counts = occurrences(slots.col, cols)
    return Slots(pointers(counts, dtype), row_of_slot(slots)[order].to(dtype), slots.edge[order])


def occurrences(index: Tensor, count: int) -> Tensor:
    """How often 0, 1, … count − 1 occur."""
    if torch.compiler.is_compiling():  # which cannot tell how long bincount's answer is
        return torch.zeros(count, dtype=torch.int64, device=index.device).index_add(
            0, index, torch.ones_like(index, dtype=torch.int64)
        )
    return torch.bincount(index, minlength=count)


def pointers(counts: Tensor, dtype: torch.dtype) -> Tensor:
    """Where each row begins, and where the last one ends: 0 and the running sum of the counts."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(dtype)


def row_of_slot(slots: Slots) -> Tensor:
    """The row each slot belongs to, int64."""
    if torch.compiler.is_compiling():  # whose decompositions of repeat_interleave fix the number of slots
        every = torch.arange(slots.col.shape[0], dtype=slots.rowptr.dtype, device=slots.col.device)
        # Not in rowptr[1:]: torch 2.11, compiling for a GPU, searches a slice from where its whole begins.
        return torch.searchsorted(slots.rowptr, every, right=True) - 1
    rows = torch.arange(slots.rowptr.shape[0] - 1, device=slots.rowptr.device)
    return rows.repeat_interleave(slots.rowptr.diff(), output_size=slots.col.shape[0])


def index_dtype(*counts: int) -> torch.dtype:
    """int32 where every count fits (it halves what the kernels read), else int64."""
    # Each by itself: their maximum would tell a compiler which one is largest.
    return torch.int32 if all(count < 2**31 for count in counts) else torch.int64
