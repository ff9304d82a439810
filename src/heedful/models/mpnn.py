"""MPNN: nodes send each other messages that a network writes, and remember what they hear."""

from __future__ import annotations

from torch import Tensor, nn

from ..graphs import Graph
from ..nn import Dropout, Jointly, MessagePassing, readout
from ..nn.checks import check_choice, check_count
from ..nn.graph.affine import Affine
from ..nn.graph.features import Features
from .graph_parts import NORMS, READOUTS, Graphs, each, rows
from .model import Model

UPDATES = ("gru", "mlp")


class MPNN(Model):
    r"""x_i ← U(x_i, □_{j∈N(i)} M(x_i, x_j, e_ij)), from x_i = E f_i on;   out = R(x_i), or R(□_i x_i) a graph

    Args:
        features, hidden, outputs: widths of what a node knows, of its state and messages, of what is wanted.
        layers: rounds of messages.
        edge_features: width of e_ij, if edges have any.
        aggregate: how a node puts messages together: "sum", "mean", "max", "min", "median", "std".
        update: U, "gru" (the state is a memory) or "mlp" (x + MLP(x, m)).
        readout: None for a row a node; "sum", "mean", "max" … for a row a graph, of which `Graph.batch` makes
            many one.
        shared: one M and U for all rounds, as published, instead of one each.
        dropout: share of the states zeroed in training before M.
        norm: None, "batch", "layer" or "rms", of each new state.

    M, and the MLPs, have one hidden layer. Messages are held for every edge at once: memory grows with
    edges × hidden. Gilmer et al., ICML 2017.

    >>> import torch, heedful
    >>> molecules = heedful.Graph.batch([heedful.Graph.complete(5), heedful.Graph.complete(3)])
    >>> model = heedful.models.MPNN(11, 64, 1, edge_features=4, readout="sum")
    >>> model(torch.randn(8, 11), molecules, torch.randn(34, 4)).shape
    torch.Size([2, 1])
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        outputs: int,
        *,
        layers: int = 3,
        edge_features: int | None = None,
        aggregate: str = "sum",
        update: str = "gru",
        readout: str | None = None,
        shared: bool = False,
        dropout: float = 0.0,
        norm: str | None = None,
    ):
        super().__init__()
        check_count("MPNN", features=features, hidden=hidden, outputs=outputs, layers=layers)
        check_choice("MPNN", "update", update, UPDATES)
        if norm is not None:
            check_choice("MPNN", "norm", norm, NORMS)
        if readout is not None:
            check_choice("MPNN", "readout", readout, READOUTS)
        self.rounds, self.readout, self.edge_features = layers, readout, edge_features
        self.embed = Affine(features, hidden)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            MessagePassing(
                message=mlp(2 * hidden + (edge_features or 0), hidden),
                update=Gru(hidden) if update == "gru" else Added(hidden),
                aggregate=aggregate,
            )
            for _ in range(1 if shared else layers)
        )
        self.norms = nn.ModuleList(NORMS[norm](hidden) for _ in self.layers) if norm else None
        self.head = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    def forward(self, x: Features, graph: Graphs, edge_features: Tensor | None = None) -> Tensor:
        """(..., nodes, outputs), or (..., graphs, outputs); edge_features (edges, width)."""
        if (edge_features is None) != (self.edge_features is None):
            got = "none" if edge_features is None else "some"
            raise ValueError(f"MPNN(edge_features={self.edge_features}): got {got} in the call.")
        h = self.embed(x)
        for number, one in enumerate(each("MPNN", graph, self.rounds)):
            number %= len(self.layers)
            h = self.layers[number](self.dropout(h), one, rows(edge_features, one))
            h = h if self.norms is None else self.norms[number](h)
        return self.head(h if self.readout is None else readout(h, self._whole(graph), self.readout))

    def _whole(self, graph: Graphs) -> Graph:
        if not isinstance(graph, Graph):
            raise TypeError(
                f"MPNN(readout={self.readout!r}): reads out a whole Graph, not layers of a sample."
            )
        return graph


def mlp(inputs: int, hidden: int) -> Jointly:
    return Jointly(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden))


class Gru(nn.Module):
    """x' = GRU(m, x): the message is what comes in, the state what is remembered."""

    def __init__(self, hidden: int):
        super().__init__()
        self.cell = nn.GRUCell(hidden, hidden)

    def forward(self, x: Tensor, m: Tensor) -> Tensor:
        new = self.cell(m.flatten(0, -2), x.flatten(0, -2))  # the cell takes one leading dimension
        return new.view(x.shape)


class Added(nn.Module):
    """x' = x + MLP(x, m)"""

    def __init__(self, hidden: int):
        super().__init__()
        self.mlp = mlp(2 * hidden, hidden)

    def forward(self, x: Tensor, m: Tensor) -> Tensor:
        return x + self.mlp(x, m)
