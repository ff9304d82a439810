import pytest
import torch

from heedful.graphs import Graph


@pytest.fixture(autouse=True)
def uninitialised_memory_is_nan():
    """Whatever a kernel forgets to write shows up as NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def tangled(seed):
    """Ten nodes, thirty edges: duplicates, self-loops, nodes that hear nobody, and weights in float64."""
    source, target = torch.randint(0, 10, (30,)), torch.randint(2, 10, (30,))
    source[:3], target[:3] = torch.tensor([4, 4, 5]), torch.tensor([7, 7, 5])
    return Graph.from_edges(source, target, nodes=10, weight=torch.rand(30, dtype=torch.float64) + 0.1)
