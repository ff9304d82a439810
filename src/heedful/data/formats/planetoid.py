"""Planetoid's files: Python 2 pickles, opened by an unpickler that knows six names and refuses all others."""

from __future__ import annotations

import io
import pickle
from collections import defaultdict

import numpy as np
import torch

from ...graphs import Graph
from ..kinds import GraphData

# Planetoid gives numbers only. These are the names LINQS gives to classes of these sizes.
CLASSES = {
    "cora": (
        "Theory",
        "Reinforcement_Learning",
        "Genetic_Algorithms",
        "Neural_Networks",
        "Probabilistic_Methods",
        "Case_Based",
        "Rule_Learning",
    ),
    "citeseer": ("AI", "ML", "IR", "DB", "Agents", "HCI"),
    "pubmed": ("Diabetes Mellitus, Experimental", "Diabetes Mellitus Type 1", "Diabetes Mellitus Type 2"),
}


class Matrix:
    """What a pickled scipy csr_matrix becomes: its arrays, and no method that would trust them."""

    def __setstate__(self, state):
        self.shape, self.data, self.indices, self.indptr = (
            state[key] for key in ("_shape", "data", "indices", "indptr")
        )

    def dense(self) -> np.ndarray:
        """The matrix itself, its parts checked against each other."""
        rows, columns = self.shape
        lengths = np.diff(self.indptr)
        if len(lengths) != rows or self.indptr[0] != 0 or (lengths < 0).any():
            raise ValueError("row pointers do not fit the shape")
        if not len(self.data) == len(self.indices) == self.indptr[-1]:
            raise ValueError("there are not as many entries as the row pointers say")
        if len(self.indices) and not 0 <= self.indices.min() <= self.indices.max() < columns:
            raise ValueError("a column is outside the shape")
        dense = np.zeros((rows, columns), np.float32)
        dense[np.repeat(np.arange(rows), lengths), self.indices] = self.data
        return dense


ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # numpy 2 moved it
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("scipy.sparse.csr", "csr_matrix"): Matrix,
    ("collections", "defaultdict"): defaultdict,
    ("__builtin__", "list"): list,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str):
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")
        return ALLOWED[module, name]


def unpickle(data: bytes, name: str = "pickle"):
    """The arrays, matrices and dictionaries in a pickle; anything else is refused with a ValueError.

    >>> unpickle(pickle.dumps({1: [2, 3]}))
    {1: [2, 3]}
    >>> unpickle(pickle.dumps(print))
    Traceback (most recent call last):
    ValueError: pickle: cannot be read: it asks for builtins.print, which is not allowed
    """
    try:
        return _Unpickler(io.BytesIO(data), encoding="latin1", fix_imports=False).load()
    except Exception as error:  # a broken pickle can fail in any way
        raise ValueError(f"{name}: cannot be read: {error}") from error


def cora(files: dict[str, bytes]) -> GraphData:
    """Cora with the split of Planetoid."""
    return read(files, "cora")


def citeseer(files: dict[str, bytes]) -> GraphData:
    """Citeseer with the split of Planetoid; 15 nodes without words or class (label −1)."""
    return read(files, "citeseer")


def pubmed(files: dict[str, bytes]) -> GraphData:
    """Pubmed with the split of Planetoid."""
    return read(files, "pubmed")


def read(files: dict[str, bytes], name: str) -> GraphData:
    """The graph of eight files: labelled x, test tx, all but test allx; y, ty, ally; graph; test.index.

    Test rows come in the order of test.index. Node numbers in the range of test.index that it leaves out
    (Citeseer has 15) have no row: they get zeros, as everywhere, and the label −1. Self-loops (Citeseer 124,
    Pubmed 3) and duplicates are dropped.
    """

    def part(which: str):
        path = f"planetoid/ind.{name}.{which}"
        found = unpickle(files[path], path)
        return found.dense() if isinstance(found, Matrix) else found

    test = np.array(files[f"planetoid/ind.{name}.test.index"].split(), dtype=np.int64)
    known = len(part("allx"))
    nodes = int(test.max()) + 1

    def rows(rest: str, tested: str) -> np.ndarray:
        above, below = part(rest), part(tested)
        whole = np.zeros((nodes, above.shape[1]), np.float32)
        whole[:known], whole[test] = above, below
        return whole

    one_hot = rows("ally", "ty")
    labels = np.where(one_hot.any(1), one_hot.argmax(1), -1)
    edges = np.array([(j, i) for i, others in part("graph").items() for j in others], dtype=np.int64).T
    graph = Graph.from_edges(*edges, nodes=nodes).without_self_loops().undirected().coalesce()
    train = len(part("y"))
    return GraphData(
        name,
        graph,
        torch.from_numpy(rows("allx", "tx")),
        torch.from_numpy(labels),
        train=torch.arange(train),
        val=torch.arange(train, train + 500),
        test=torch.from_numpy(np.sort(test)),
        classes=CLASSES[name],
    )
