"""GATv2Conv: attention by a vector that looks at the sum of listener and speaker."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...attention import Additive
from ...graphs import Graph
from .attention import AttentionLayer, check_attention
from .edges import Edges
from .layer import Pair, check_channels, count_nodes, split_pair
from .linear import Linear, glorot


class GATv2Conv(AttentionLayer):
    r"""out_i = Σ_{j∈N(i)∪{i}} α_ij W_l x_j + b,   α_ij ∝ exp(a·leaky(W_r x_i + W_l x_j + W_e e_ij))

    PyG's `GATv2Conv`: the same arguments, the same `state_dict`, the same results, faster.

    Args:
        in_channels: size of x, −1 to see it at the first call; a pair for a bipartite graph.
        out_channels: size of a head's output.
        heads: how many heads.
        concat: set heads side by side; else average them.
        negative_slope: slope of the leaky ReLU below 0.
        dropout: share of attention weights zeroed while training.
        add_self_loops: replace self-loops by one a node.
        edge_dim: size of edge features, if there are any.
        fill_value: edge features of those loops: a number, a tensor, or how to make them of those of the
            edges into the node ("mean", "add", "min", "max" or "mul").
        bias: add b, and biases to W_l and W_r.
        share_weights: let W_r be W_l.
        residual: add W x_i, with a matrix of its own.

    >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> GATv2Conv(16, 8, heads=2)(x, edge_index).shape
    torch.Size([4, 16])
    """

    node_dim = 0

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: int | None = None,
        fill_value: float | Tensor | str = "mean",
        bias: bool = True,
        share_weights: bool = False,
        residual: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        name = type(self).__name__
        sources, targets = check_channels(in_channels, out_channels, name)
        check_attention(heads, dropout, name, slope=negative_slope, fill=fill_value)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.heads, self.concat = heads, concat
        self.negative_slope, self.dropout, self.add_self_loops = negative_slope, dropout, add_self_loops
        self.edge_dim, self.fill_value, self.residual = edge_dim, fill_value, residual
        self.share_weights = share_weights

        width, total = heads * out_channels, out_channels * (heads if concat else 1)
        self.lin_l = Linear(sources, width, bias=bias, glorot=True)
        self.lin_r = self.lin_l if share_weights else Linear(targets, width, bias=bias, glorot=True)
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, width, bias=False, glorot=True)
        self.res = Linear(targets, total, bias=False, glorot=True) if residual else None
        self.bias = nn.Parameter(torch.empty(total)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for linear in (self.lin_l, self.lin_r, self.lin_edge, self.res):
            if linear is not None:
                linear.reset_parameters()
        glorot(self.att)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        x: Pair,
        edge_index: Tensor | Graph,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ):
        """(targets, heads · channels); with return_attention_weights also (edge_index, α (edges, heads)).

        x is (nodes, features), or a pair for sources and targets.
        """
        name = type(self).__name__
        x_source, x_target = split_pair(x, name, self.in_channels)
        if x_target is None:
            raise ValueError(f"{name}: x[1] is None; the listener's features are part of every score.")
        z_source = self.lin_l(x_source)
        z_target = z_source if self.share_weights and x_target is x_source else self.lin_r(x_target)
        sources, targets = count_nodes(x_source, x_target, None, name)

        edges = self._edges(edge_index, x_source, sources, targets, loops=self.add_self_loops)
        speaker = self._split(z_source)  # (heads, sources, channels)
        out, _, alpha = self._attend(
            edges,
            self._split(z_target),
            speaker,
            speaker,
            Additive(self.negative_slope, weight=self.att[0]),
            edge_key=self._edge_key(edge_attr, edges),
            weights=bool(return_attention_weights),
        )
        out = self._finish(self._merge(out), x_target)
        return (out, (edges.index_like(edge_index), alpha)) if return_attention_weights else out

    def _edge_key(self, edge_attr: Tensor | None, edges: Edges) -> Tensor | None:
        """W_e e, (heads, edges, channels)"""
        if edge_attr is None:
            return None
        if self.lin_edge is None:
            raise ValueError(
                "GATv2Conv: edge_attr is given, but the layer was made without edge_dim; set it."
            )
        edge_attr = edges.features(self._edge_features(edge_attr, edges), self.fill_value)
        return self._split(self.lin_edge(edge_attr))
