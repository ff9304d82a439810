"""GCN: every layer is a step of diffusion over the graph, and a matrix."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from ..nn import Dropout, GCNConv
from ..nn.checks import check_count
from ..nn.graph.features import Features
from .graph_parts import After, Graphs, each
from .model import Model


class GCN(Model):
    r"""X ← σ(Â drop(X) W + b), the last layer without σ;   Â = D̂^−½ (A + I) D̂^−½

    Args:
        features, hidden, classes: widths of what a node knows, of what is in between, of what is wanted.
        layers: how many.
        dropout: share of each layer's input zeroed in training; of the features `input_dropout`, if given.
        activation: σ, "relu" unless given; "elu", "gelu", "tanh", "none".
        norm: None, "batch", "layer" or "rms", before σ.
        residual: whether layers in between add what they heard last.
        normalize, self_loops: as in `GCNConv`.

    The features may be sparse, and should be where they are mostly zeros: `Graph.from_dense(x)`, once. With
    `normalize=None, self_loops=False` and a graph that is normalised already, `graph` may be the layers of a
    sample. As published: hidden 16, Adam at 0.01, weight decay 5e-4 on the first layer only. Kipf & Welling,
    ICLR 2017.

    >>> import torch, heedful
    >>> model = heedful.models.GCN(1433, 16, 7)
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
        dropout: float = 0.5,
        input_dropout: float | None = None,
        activation: str = "relu",
        norm: str | None = None,
        residual: bool = False,
        normalize: str | None = "symmetric",
        self_loops: bool = True,
    ):
        super().__init__()
        check_count("GCN", features=features, hidden=hidden, classes=classes, layers=layers)
        widths = [features, *[hidden] * (layers - 1), classes]
        self.dropout = Dropout(dropout)
        self.input_dropout = self.dropout if input_dropout is None else Dropout(input_dropout)
        self.layers = nn.ModuleList(
            GCNConv(a, b, normalize=normalize, self_loops=self_loops) for a, b in pairwise(widths)
        )
        self.after = nn.ModuleList(
            After(a, b, activation=activation, norm=norm, residual=residual) for a, b in pairwise(widths[:-1])
        )
        self.after.append(After(widths[-2], classes))

    def forward(self, x: Features, graph: Graphs) -> Tensor:
        """Logits (..., nodes, classes) of x (..., nodes, features), dense or sparse."""
        graphs = each("GCN", graph, len(self.layers))
        heard = self.input_dropout(x)
        for n, (layer, after, one) in enumerate(zip(self.layers, self.after, graphs, strict=True), 1):
            z, last = layer(heard, one), n == len(graphs)
            if after.residual:
                x = after(z, x, one)
                heard = x if last else self.dropout(x)
            else:
                x = heard = after(z, x, one, None if last else self.dropout)
        return x  # type: ignore[return-value]
