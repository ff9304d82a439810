"""GAT: every layer listens to neighbours, more to those that matter."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from ..attention.neighbors import Neighbors
from ..graphs import Graph
from ..nn import Dropout, GATConv
from ..nn.checks import check_count
from ..nn.graph.features import Features
from .graph_parts import After, Graphs, each, evaluating, instead, override, rows
from .model import Model


class GAT(Model):
    r"""X ← σ(‖_h Σ_{j∈N(i)} α_ij W drop(x_j)), the last layer without σ, its heads averaged

    Args:
        features, hidden, classes: widths of what a node knows, of a head in between, of what is wanted.
        layers: how many.
        heads, output_heads: of layers in between, side by side; of the last layer, averaged.
        dropout: share of each layer's input zeroed in training; of the α too, unless `attention_dropout` is
            given.
        slope, self_loops, shared, edge_features, bias: as in `GATConv`.
        activation: σ, "elu" unless given; "relu", "gelu", "tanh", "none".
        norm: None, "batch", "layer" or "rms", before σ.
        residual: whether layers in between add what they heard last.
        neighbors: who is heard in place of the graph's edges: "everyone" makes a graph transformer of it
            (each graph of a batch keeps to itself).

    The features may be sparse, and should be where they are mostly zeros: `Graph.from_dense(x)`, once.
    `graph` may be the layers of a sample, edge_features then those of `sample.graph`. As published: 8 heads
    of 8 (8 output heads on Pubmed), Adam at 0.005, weight decay 5e-4. Veličković et al., ICLR 2018.

    >>> import torch, heedful
    >>> model = heedful.models.GAT(1433, 8, 7)
    >>> model.parameter_count
    92373
    >>> graph = heedful.Graph.from_edges([0, 1, 1, 2], [1, 0, 2, 1], nodes=3)
    >>> model(torch.randn(3, 1433), graph).shape
    torch.Size([3, 7])
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        classes: int,
        *,
        layers: int = 2,
        heads: int = 8,
        output_heads: int = 1,
        dropout: float = 0.6,
        attention_dropout: float | None = None,
        slope: float = 0.2,
        self_loops: bool = True,
        shared: bool = False,
        edge_features: int | None = None,
        bias: bool = True,
        activation: str = "elu",
        norm: str | None = None,
        residual: bool = False,
        neighbors: Neighbors | str | None = None,
    ):
        super().__init__()
        check_count("GAT", features=features, hidden=hidden, classes=classes, layers=layers)
        self.neighbors = override("GAT", neighbors, edge_features)
        widths = [features, *[heads * hidden] * (layers - 1)]
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            GATConv(
                width,
                hidden if inner else classes,
                heads if inner else output_heads,
                concat=inner,
                slope=slope,
                dropout=dropout if attention_dropout is None else attention_dropout,
                self_loops=self_loops,
                shared=shared,
                edge_features=edge_features,
                bias=bias,
            )
            for width, inner in zip(widths, [True] * (layers - 1) + [False], strict=True)
        )
        self.after = nn.ModuleList(
            After(a, b, activation=activation, norm=norm, residual=residual) for a, b in pairwise(widths)
        )
        self.after.append(After(widths[-1], classes))

    def forward(self, x: Features, graph: Graphs, edge_features: Tensor | None = None) -> Tensor:
        """Logits (..., nodes, classes) of x (..., nodes, features), dense or sparse."""
        graphs = each("GAT", graph, len(self.layers))
        for layer, after, one in zip(self.layers, self.after, graphs, strict=True):
            out = layer(self.dropout(x), instead(self.neighbors, one), rows(edge_features, one))
            x = after(out, x, one)
        return x  # type: ignore[return-value]

    @torch.no_grad()
    def attention(self, x: Features, graph: Graphs, edge_features: Tensor | None = None) -> list[Graph]:
        """α of every layer, without dropout: graphs with weights (..., heads, edges), as in `GATConv`."""
        graphs, found = each("GAT", graph, len(self.layers)), []
        with evaluating(self):
            for layer, after, one in zip(self.layers, self.after, graphs, strict=True):
                call = x, instead(self.neighbors, one), rows(edge_features, one)
                found.append(layer.attention(*call))  # type: ignore[operator]
                x = after(layer(*call), x, one)
        return found
