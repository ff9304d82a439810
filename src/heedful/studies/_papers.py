"""Citation graphs as studies train on them, and the nets of the University of Toronto's notebook."""

from __future__ import annotations

import torch
from torch import nn

from ..graphs import Graph
from ..models import GAT, GCN
from ..nn import GATConv, GCNConv


class Papers:
    """A citation graph where a model wants it, its features as edges of a bipartite graph: most are zero."""

    def __init__(self, found, device):
        found = found.row_normalized()
        self.graph = found.graph.to(device)
        self.x = Graph.from_dense(found.features).to(device)
        self.features, self.classes = found.features.shape[1], found.classes
        self.labels = found.labels.to(device)
        self.train, self.val, self.test = (part.to(device) for part in (found.train, found.val, found.test))


def course_net(model: str, features: int, hidden: int | None, classes: int) -> GCN | GAT:
    """GCN 16 or GAT 8 × 2, one score vector for all heads, dropout ½, weights drawn as by nn.Linear.

    The GCN's features are not dropped out, the GAT has no biases.
    """
    if model == "gcn":
        net: GCN | GAT = GCN(features, hidden or 16, classes, dropout=0.5, input_dropout=0.0)
    else:
        net = GAT(features, hidden or 2, classes, heads=8, shared=True, dropout=0.5, bias=False)
    for layer in net.layers:
        assert isinstance(layer, (GCNConv, GATConv))
        for name, parameter in layer.named_parameters():
            heads = isinstance(layer, GATConv) and name in ("listener", "speaker")
            inputs = 2 * layer.dim if heads else len(layer.weight)  # type: ignore[union-attr, operator]
            nn.init.uniform_(parameter, -(float(inputs) ** -0.5), float(inputs) ** -0.5)
    return net


def course_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Adam, with weight decay on everything."""
    return torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
