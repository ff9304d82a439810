"""The index operators under `aggregate`: torch's checks, and the compiled loops against sorting."""

import pytest
import torch

from heedful.graphs import Graph
from heedful.kernels.aggregate import _argmax_by_sorting, _middle_by_sorting, neighbor_argmax, neighbor_middle


@pytest.fixture(params=[torch.float32, torch.float64])
def problem(request, seed):
    """Rows of 0 to about 80 slots; many equal values, some NaN."""
    source = torch.randint(0, 90, (300,))
    target = torch.cat([torch.zeros(80, dtype=torch.int64), torch.randint(1, 40, (220,))])
    graph = Graph.from_edges(source, target, sources=90, targets=45)
    x = torch.randint(0, 6, (90, 7)).to(request.param)
    x[torch.randint(0, 90, (4,)), torch.randint(0, 7, (4,))] = torch.nan
    return graph.rowptr, graph.col, x


@pytest.mark.parametrize("largest", [True, False])
def test_argmax_agrees_with_sorting(problem, largest):
    """Ties included: the first slot wins in both."""
    assert torch.equal(neighbor_argmax(*problem, largest), _argmax_by_sorting(*problem, largest))


def test_middle_agrees_with_sorting(problem):
    rowptr, col, x = problem
    ours, theirs = neighbor_middle(*problem), _middle_by_sorting(*problem)
    assert torch.equal(ours < 0, theirs < 0) and (ours[:, rowptr.diff() == 0] == -1).all()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(
            x.gather(0, a.clamp(min=0)), x.gather(0, b.clamp(min=0)), equal_nan=True, rtol=0, atol=0
        )
    clean = x.nan_to_num(0)  # without NaN the very same neighbours, ties included
    assert torch.equal(neighbor_middle(rowptr, col, clean), _middle_by_sorting(rowptr, col, clean))


def test_operators_pass_opcheck(problem):
    torch.library.opcheck(neighbor_argmax, (*problem, True))
    torch.library.opcheck(neighbor_middle, problem)


def test_half_precision_and_wide_index(problem):
    rowptr, col, x = problem
    expected = neighbor_argmax(rowptr, col, x.float(), True)
    assert torch.equal(neighbor_argmax(rowptr.long(), col.long(), x.bfloat16(), True), expected)
