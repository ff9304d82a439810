"""GATConv: attention by a sum of two scores, one of the listener and one of the speaker."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...attention import Additive
from ...graphs import Graph
from .attention import AttentionLayer, check_attention
from .edges import Edges
from .layer import Pair, check_channels, count_nodes, split_pair
from .linear import Linear, glorot


class GATConv(AttentionLayer):
    r"""out_i = Σ_{j∈N(i)∪{i}} α_ij W x_j + b,   α_ij ∝ exp(leaky(a_t·W x_i + a_s·W x_j + a_e·W_e e_ij))

    PyG's `GATConv`: the same arguments, the same `state_dict`, the same results, faster.

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
        bias: add b.
        residual: add W_r x_i.

    >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> layer = GATConv(16, 8, heads=2)
    >>> layer
    GATConv(16, 8, heads=2)
    >>> layer(x, edge_index).shape
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

        bipartite = not isinstance(in_channels, int)
        width, total = heads * out_channels, out_channels * (heads if concat else 1)
        self.lin = None if bipartite else Linear(sources, width, bias=False, glorot=True)
        self.lin_src = Linear(sources, width, bias=False, glorot=True) if bipartite else None
        self.lin_dst = Linear(targets, width, bias=False, glorot=True) if bipartite else None
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, width, bias=False, glorot=True)
        self.att_edge = None if edge_dim is None else nn.Parameter(torch.empty(1, heads, out_channels))
        self.res = Linear(targets, total, bias=False, glorot=True) if residual else None
        self.bias = nn.Parameter(torch.empty(total)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for linear in (self.lin, self.lin_src, self.lin_dst, self.lin_edge, self.res):
            if linear is not None:
                linear.reset_parameters()
        for attention in (self.att_src, self.att_dst, self.att_edge):
            glorot(attention)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        x: Pair,
        edge_index: Tensor | Graph,
        edge_attr: Tensor | None = None,
        size: tuple[int, int] | None = None,
        return_attention_weights: bool | None = None,
    ):
        """(targets, heads · channels); with return_attention_weights also (edge_index, α (edges, heads)).

        x is (nodes, features), or a pair for sources and targets, the second of which may be None.
        """
        name = type(self).__name__
        x_source, x_target = split_pair(x, name, self.in_channels)
        z_source, z_target = self._project(x_source, x_target)
        sources, targets = count_nodes(x_source, x_target, size, name)

        edges = self._edges(edge_index, x_source, sources, targets, loops=self.add_self_loops)
        speaker = self._score(z_source, self.att_src)  # (heads, sources, 1)
        if z_target is None:
            listener = speaker.new_zeros(1, 1, 1).expand(self.heads, targets, 1)
        else:
            listener = self._score(z_target, self.att_dst)  # (heads, targets, 1)
        out, _, alpha = self._attend(
            edges,
            listener,
            speaker,
            self._split(z_source),
            Additive(self.negative_slope),
            edge_key=self._edge_score(edge_attr, edges),
            weights=bool(return_attention_weights),
        )
        out = self._finish(self._merge(out), x_target)
        return (out, (edges.index_like(edge_index), alpha)) if return_attention_weights else out

    def _project(self, x_source: Tensor, x_target: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """W x of sources and targets, by one matrix or one for each."""
        if self.lin is None:
            assert self.lin_src is not None and self.lin_dst is not None
            return self.lin_src(x_source), None if x_target is None else self.lin_dst(x_target)
        z_source = self.lin(x_source)
        if x_target is None or x_target is x_source:
            return z_source, None if x_target is None else z_source
        return z_source, self.lin(x_target)

    def _edge_score(self, edge_attr: Tensor | None, edges: Edges) -> Tensor | None:
        """a_e·W_e e as (a_e W_e)·e: one number an edge and head, where W_e e would be one a channel."""
        if edge_attr is None or self.lin_edge is None or self.att_edge is None:
            return None
        edge_attr = edges.features(self._edge_features(edge_attr, edges), self.fill_value)
        weight = self.lin_edge.weight_for(edge_attr).view(self.heads, self.out_channels, -1)
        folded = (self.att_edge.unsqueeze(-1) * weight).sum(2)[0]  # (heads, edge_dim)
        return F.linear(edge_attr, folded).T.unsqueeze(-1)  # (heads, edges, 1)
