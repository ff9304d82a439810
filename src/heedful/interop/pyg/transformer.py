"""TransformerConv: dot-product attention along edges, with a skip connection."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from ...attention import Softmax
from ...graphs import Graph
from .attention import AttentionLayer, check_attention
from .edges import Edges
from .layer import Pair, check_channels, count_nodes, split_pair
from .linear import Linear


class TransformerConv(AttentionLayer):
    r"""out_i = W_s x_i + Σ_{j∈N(i)} α_ij (W_v x_j + W_e e_ij),   α_ij ∝ exp(W_q x_i·(W_k x_j + W_e e_ij)/√d)

    PyG's `TransformerConv`: the same arguments, the same `state_dict`, the same results, faster.

    Args:
        in_channels: size of x, −1 to see it at the first call; a pair for a bipartite graph.
        out_channels: size of a head's output, d.
        heads: how many heads.
        concat: set heads side by side; else average them.
        beta: weigh the skip connection s_i = W_s x_i against the sum m_i by a gate,
            β_i s_i + (1 − β_i) m_i with β_i = sigmoid(w·[m_i, s_i, m_i − s_i]).
        dropout: share of attention weights zeroed while training.
        edge_dim: size of edge features, if there are any.
        bias: add biases to all matrices but W_e.
        root_weight: add the skip connection; without it there is no `beta` either.

    >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> TransformerConv(16, 8, heads=2)(x, edge_index).shape
    torch.Size([4, 16])
    """

    node_dim = 0

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        beta: bool = False,
        dropout: float = 0.0,
        edge_dim: int | None = None,
        bias: bool = True,
        root_weight: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        name = type(self).__name__
        sources, targets = check_channels(in_channels, out_channels, name)
        check_attention(heads, dropout, name)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.heads, self.concat = heads, concat
        self.beta, self.root_weight = beta and root_weight, root_weight
        self.dropout, self.edge_dim = dropout, edge_dim

        width, total = heads * out_channels, out_channels * (heads if concat else 1)
        self.lin_key = Linear(sources, width, bias=bias)
        self.lin_query = Linear(targets, width, bias=bias)
        self.lin_value = Linear(sources, width, bias=bias)
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, width, bias=False)
        self.lin_skip = Linear(targets, total, bias=bias)
        self.lin_beta = Linear(3 * total, 1, bias=False) if self.beta else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for linear in self.children():
            cast(Linear, linear).reset_parameters()

    def forward(
        self,
        x: Pair,
        edge_index: Tensor | Graph,
        edge_attr: Tensor | None = None,
        return_attention_weights: bool | None = None,
    ):
        """(targets, heads · channels); with return_attention_weights, True or False, also (edge_index, α).

        x is (nodes, features), or a pair for sources and targets.
        """
        name = type(self).__name__
        x_source, x_target = split_pair(x, name, self.in_channels)
        if x_target is None:
            raise ValueError(f"{name}: x[1] is None; queries are made of the listener's features.")
        sources, targets = count_nodes(x_source, x_target, None, name)
        edges = self._edges(edge_index, x_source, sources, targets)
        along = self._along_edges(edge_attr, edges)  # (heads, edges, channels)
        weights = isinstance(return_attention_weights, bool)
        out, alpha, _ = self._attend(
            edges,
            self._split(self.lin_query(x_target)),
            self._split(self.lin_key(x_source)),
            self._split(self.lin_value(x_source)),
            Softmax(),
            edge_key=along,
            edge_value=along,
            weights=weights,
        )
        out = self._merge(out)
        if self.root_weight:
            skip = self.lin_skip(x_target)
            if self.lin_beta is None:
                out = out + skip
            else:
                beta = self.lin_beta(torch.cat([out, skip, out - skip], -1)).sigmoid()
                out = beta * skip + (1 - beta) * out
        return (out, (edges.index_like(edge_index), alpha)) if weights else out

    def _along_edges(self, edge_attr: Tensor | None, edges: Edges) -> Tensor | None:
        """W_e e, which is part of what is compared and of what is heard."""
        if (edge_attr is None) != (self.lin_edge is None):
            told, done = ("edge_dim", "edge_attr") if edge_attr is None else ("edge_attr", "edge_dim")
            raise ValueError(f"TransformerConv: {told} was given without {done}; they go together.")
        if edge_attr is None or self.lin_edge is None:
            return None
        return self._split(self.lin_edge(self._edge_features(edge_attr, edges)))
