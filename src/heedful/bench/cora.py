"""A training epoch on a graph the size of Cora, as the papers train: heedful's GAT and GCN beside PyG's.

    zero_grad, forward with dropout, cross-entropy on 140 nodes, backward, a step of (fused) Adam

2,708 nodes, 10,556 edges, 1,433 words of which a node has 1.27 %, rows divided by their sums. Both sides drop
words, hidden states and (GAT) attention weights with the same probabilities. heedful is given the words as a
sparse table and PyG as a dense one, which is how its examples are written; heedful with a dense table is
shown too. The models are the same: before training their outputs are compared with equal weights. Epochs are
run ten in a row, as in training, the rivals in turns.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .. import Graph
from ..models import GAT, GCN
from . import interleaved

NODES, EDGES, WORDS, CLASSES, DENSITY, TRAINED = 2708, 10556, 1433, 7, 0.0127, 140
LEARNING = {"gat": {"lr": 0.005, "weight_decay": 5e-4}, "gcn": {"lr": 0.01, "weight_decay": 5e-4}}
GOAL = {"gat": 12, "gcn": 20}
IN_A_ROW = 10


def run_gat(*, quick: bool, device: str):
    return _run("gat", GAT(WORDS, 8, CLASSES), quick, device)


def run_gcn(*, quick: bool, device: str):
    return _run("gcn", GCN(WORDS, 16, CLASSES), quick, device)


def _run(name: str, ours: nn.Module, quick: bool, device: str):
    torch.manual_seed(0)
    index, x, classes = _data(device)
    graph, sparse = Graph.from_edge_index(index, nodes=NODES), Graph.from_dense(x)
    ours, learning = ours.to(device), LEARNING[name]
    calls = {
        "heedful": _epoch(ours, learning, classes, sparse, graph),
        "heedful, dense features": _epoch(ours, learning, classes, x, graph),
    }
    try:
        theirs = _RIVALS[name]().to(device)
    except ImportError:
        theirs = None
    if theirs is not None:
        difference = _difference(ours, theirs, x, sparse, graph, index)
        calls["PyG eager"] = _epoch(theirs, learning, classes, x, index)
    calls = {what: _in_a_row(once) for what, once in calls.items()}
    taken = interleaved(calls, rounds=3 if quick else 9, warm=1)
    rows = [
        {"what": what, "epoch ms": 1e3 * seconds / IN_A_ROW, "times heedful": seconds / taken["heedful"]}
        for what, seconds in taken.items()
    ]
    if theirs is None:
        return rows, "PyTorch Geometric is not installed; nothing to compare with.", None
    ratio, goal = taken["PyG eager"] / taken["heedful"], GOAL[name]
    alike = taken["PyG eager"] / taken["heedful, dense features"]
    verdict = (
        f"{ratio:.1f}× PyG eager (goal {goal}), {alike:.1f}× with dense features as PyG has; "
        f"largest difference of logits {difference:.1e}"
    )
    return rows, verdict, ratio >= goal


def _data(device: str):
    half = torch.randint(NODES, (2, EDGES // 2), device=device)
    index = torch.cat([half, half.flip(0)], 1)
    index = index[:, index[0] != index[1]]
    words = (torch.rand(NODES, WORDS, device=device) < DENSITY).float()
    return (
        index,
        words / words.sum(1, keepdim=True).clamp(min=1),
        torch.randint(CLASSES, (NODES,), device=device),
    )


def _epoch(model: nn.Module, learning: dict, classes, *inputs):
    optimizer = torch.optim.Adam(model.parameters(), fused=True, **learning)
    known = torch.arange(TRAINED, device=classes.device)

    def once():
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(*inputs)[known], classes[known]).backward()
        optimizer.step()

    return once


def _in_a_row(once):
    def epochs():
        for _ in range(IN_A_ROW):
            once()

    return epochs


class _Rival(nn.Module):
    """Two of PyG's layers, as its own examples put them together."""

    def __init__(self, first, second, activation, dropout: float):
        super().__init__()
        self.first, self.second, self.activation, self.rate = first, second, activation, dropout

    def forward(self, x, index):
        x = F.dropout(x, self.rate, self.training)
        x = self.activation(self.first(x, index))
        x = F.dropout(x, self.rate, self.training)
        return self.second(x, index)


def _pyg_gat():
    from torch_geometric.nn import GATConv

    first = GATConv(WORDS, 8, heads=8, dropout=0.6)
    return _Rival(first, GATConv(64, CLASSES, heads=1, concat=False, dropout=0.6), F.elu, 0.6)


def _pyg_gcn():
    from torch_geometric.nn import GCNConv

    return _Rival(GCNConv(WORDS, 16, cached=True), GCNConv(16, CLASSES, cached=True), F.relu, 0.5)


_RIVALS = {"gat": _pyg_gat, "gcn": _pyg_gcn}


@torch.no_grad()
def _difference(ours, theirs, x, sparse, graph, index) -> float:
    """Of the logits, once the weights are equal."""
    for layer, other in zip(ours.layers, (theirs.first, theirs.second), strict=True):
        layer.weight.copy_(other.lin.weight.T)
        layer.bias.copy_(other.bias)
        if hasattr(layer, "listener"):
            layer.listener.copy_(other.att_dst[0])
            layer.speaker.copy_(other.att_src[0])
    ours.eval(), theirs.eval()
    return float((ours(sparse, graph) - theirs(x, index)).abs().max())
