"""Where a node is in its graph: the slow waves of the Laplacian."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...graphs import Graph
from ...graphs.structure import Structure, lasting
from ..checks import check_count

DENSE = 1500  # nodes; beyond, a few eigenvectors by Lanczos are quicker than all of them


def laplacian_positions(graph: Graph, count: int) -> Tensor:
    """The slowest eigenvectors u₁ … u_count of I − D^−½ A D^−½ but for the first: (nodes, count), float32.

    Edges count in both directions, weights and repetitions do not. Each graph of a batch has its own; one
    with too few nodes is filled up with zeros. A vector and its negative are equally right: here Σ u³ ≥ 0,
    and in training one flips them at random. Vectors of equal eigenvalues may come out rotated if the nodes
    are given in another order. Worked out once for each graph.

    >>> ring = Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0])
    >>> laplacian_positions(ring, 2).shape
    torch.Size([4, 2])
    """
    check_count("laplacian_positions", count=count)
    kept = _KEPT.setdefault(graph.structure, {})
    if count not in kept:
        with lasting(*graph.structure.forward), torch.no_grad():
            bare = graph.with_edges(weight=None, bias=None, key=None, value=None)
            kept[count] = torch.cat([_waves(part, count) for part in bare.unbatch()]).to(graph.device)
    return kept[count]


_KEPT: WeakKeyDictionary[Structure, dict[int, Tensor]] = WeakKeyDictionary()


def _waves(graph: Graph, count: int) -> Tensor:
    nodes, wanted = graph.nodes, min(count + 1, graph.nodes)
    whole = graph.to("cpu").without_self_loops().undirected().coalesce()
    if nodes <= max(DENSE, 4 * wanted):
        matrix = whole.with_edges(weight=torch.ones(whole.edges, dtype=torch.float64)).laplacian("symmetric")
        vectors = torch.linalg.eigh(matrix).eigenvectors[:, 1:wanted]
    else:
        vectors = _lanczos(whole, wanted)[:, 1:]
    skew = vectors.pow(3).sum(0)
    vectors = torch.where(skew < 0, -vectors, vectors)
    return torch.nn.functional.pad(vectors, (0, count - vectors.shape[1])).float()


def _lanczos(graph: Graph, wanted: int) -> Tensor:
    """The largest eigenvectors of 2I − L, which are the smallest of L and quicker to find."""
    import numpy as np
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import eigsh

    ones = torch.ones(graph.edges, dtype=torch.float64)
    laplacian = graph.with_edges(weight=ones).laplacian("symmetric", sparse=True)
    assert isinstance(laplacian, Graph)
    start = np.random.default_rng(0).standard_normal(graph.nodes)  # the same answer every time
    mirrored = 2 * eye_array(graph.nodes) - laplacian.to_scipy()
    values, vectors = eigsh(mirrored, k=wanted, which="LA", v0=start)
    return torch.from_numpy(vectors[:, np.argsort(-values)].copy())
