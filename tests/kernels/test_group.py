"""Grouping edges by counting gives what sorting them gives."""

from __future__ import annotations

import pytest
import torch

from heedful.graphs.structure import Structure
from heedful.kernels.group_numba import group_edges


@pytest.mark.parametrize(
    "sources,targets,edges", [(1, 1, 0), (1, 1, 3), (5, 3, 20), (40, 60, 1000), (9, 4, 1)]
)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_as_by_sorting(sources, targets, edges, dtype, seed):
    source, target = torch.randint(sources, (edges,)), torch.randint(targets, (edges,))
    rowptr, colptr = torch.zeros(targets + 1, dtype=dtype), torch.zeros(sources + 1, dtype=dtype)
    col, edge, row, edge_transposed = torch.full((4, edges), -1, dtype=dtype)
    slots = (rowptr, col, edge, colptr, row, edge_transposed)
    group_edges(source.numpy(), target.numpy(), *(tensor.numpy() for tensor in slots))
    expected = Structure.from_edges(source, target, sources, targets)
    for mine, wanted in zip(slots, (*expected.forward, *expected.backward), strict=True):
        assert torch.equal(mine.long(), wanted.long())
