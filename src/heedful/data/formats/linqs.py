"""The first release of Cora: a tar of two tables, read in memory, nothing extracted."""

from __future__ import annotations

import numpy as np
import torch

from ...graphs import Graph
from ..kinds import GraphData
from .tar import members


def cora(files: dict[str, bytes], *, train: int = 140, seed: int = 0) -> GraphData:
    """Cora, with `train` random nodes to learn from and all others tested.

    A line of cora.content is a paper: its id, 1,433 zeros and ones, its class. A line of cora.cites is the
    id of a paper and that of one citing it; as everywhere, citations are taken to go both ways.
    """
    (name,) = files
    tables = members(files[name], ("cora/cora.content", "cora/cora.cites"), name)
    papers = [line.split(b"\t") for line in tables["cora/cora.content"].splitlines()]
    nodes = len(papers)
    if not 0 < train < nodes:
        raise ValueError(f"load('cora-linqs'): train={train} must be between 1 and {nodes - 1}")
    words = np.array([paper[1:-1] for paper in papers]) == b"1"
    number = {paper[0]: place for place, paper in enumerate(papers)}
    cites = tables["cora/cora.cites"].split()
    cited, citing = (torch.tensor([number[paper] for paper in cites[side::2]]) for side in (0, 1))
    classes = sorted({paper[-1].decode() for paper in papers})
    order = torch.from_numpy(np.random.RandomState(seed).permutation(nodes))
    return GraphData(
        "cora-linqs",
        Graph.from_edges(cited, citing, nodes=nodes).without_self_loops().undirected().coalesce(),
        torch.from_numpy(words.astype(np.float32)),
        torch.tensor([classes.index(paper[-1].decode()) for paper in papers]),
        train=order[:train].sort().values,
        val=order[:0],
        test=order[train:].sort().values,
        classes=tuple(classes),
        node_names=tuple(paper[0].decode() for paper in papers),
    )
