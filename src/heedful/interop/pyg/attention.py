"""Attention along edges: heedful's operator, or, where someone wants to see the weights, edge by edge."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from ...attention import Similarity, attend
from ...graphs import check
from .edges import REDUCTIONS, Edges
from .grouped import GroupedEdges
from .layer import Layer
from .linear import Linear


def check_attention(
    heads: int,
    dropout: float,
    where: str,
    *,
    slope: float = 0.2,
    fill: float | Tensor | str = "mean",
) -> None:
    """Options the attention layers have in common, or say which one is wrong."""
    if not isinstance(heads, int) or heads < 1:
        raise ValueError(f"{where}: heads must be a positive number, got {heads!r}.")
    if not 0 <= dropout < 1:
        raise ValueError(f"{where}: dropout must lie in [0, 1), got {dropout!r}.")
    if not 0 <= slope <= 1:
        raise ValueError(f"{where}: negative_slope must lie in [0, 1], got {slope!r}.")
    if isinstance(fill, str):
        check.choice("fill_value", fill, REDUCTIONS, where=where)


class AttentionLayer(Layer):
    """A layer of several heads whose outputs are set side by side (`concat`) or averaged."""

    heads: int
    out_channels: int
    concat: bool
    dropout: float
    res: Linear | None
    bias: Tensor | None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, heads={self.heads})"

    def _split(self, x: Tensor) -> Tensor:
        """(nodes, heads · channels) → (heads, nodes, channels)"""
        return x.view(-1, self.heads, self.out_channels).transpose(0, 1)

    def _merge(self, out: Tensor) -> Tensor:
        """(heads, nodes, channels) → (nodes, heads · channels), or their mean (nodes, channels)"""
        return out.transpose(0, 1).flatten(1) if self.concat else out.mean(0)

    def _finish(self, out: Tensor, x_target: Tensor | None) -> Tensor:
        """out + W_r x + b, of which either may be missing."""
        if self.res is not None and x_target is not None:
            out = out + self.res(x_target)
        return out if self.bias is None else out + self.bias

    def _score(self, z: Tensor, attention: Tensor) -> Tensor:
        """a·z for each head: (nodes, heads · channels) → (heads, nodes, 1)"""
        return (z.view(-1, self.heads, self.out_channels) * attention).sum(-1).T.unsqueeze(-1)

    def _edge_features(self, edge_attr: Tensor, edges: Edges) -> Tensor:
        """(edges, edge_dim), also where PyG takes one number an edge as (edges,)."""
        edge_attr = self._check_edge_input("edge_attr", edge_attr, edges)
        if edge_attr.dim() > 2:
            raise ValueError(
                f"{type(self).__name__}: edge_attr has shape {tuple(edge_attr.shape)}; it takes (edges, "
                "edge_dim)."
            )
        return edge_attr.unsqueeze(-1) if edge_attr.dim() == 1 else edge_attr

    def _attend(
        self,
        edges: Edges,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        similarity: Similarity,
        *,
        edge_key: Tensor | None = None,
        edge_value: Tensor | None = None,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """out (heads, targets, channels), and with `weights` α (edges, heads) before and after dropout."""
        dropout = self.dropout if self.training else 0.0
        if isinstance(edges, GroupedEdges) and not weights:
            graph = edges.graph
            if edge_key is not None or edge_value is not None:
                graph = graph.with_edges(key=edge_key, value=edge_value)
            out = attend(query, key, value, similarity=similarity, neighbors=graph, dropout=dropout)
            return out, None, None
        if weights and edges.loops is not None and not isinstance(edges, GroupedEdges):
            raise NotImplementedError(
                f"{type(self).__name__}: torch.export cannot say how many attention weights there will be: "
                "that depends on how many self-loops are replaced; export with add_self_loops=False, or "
                "without return_attention_weights."
            )
        heard, value = key.index_select(-2, edges.source), value.index_select(-2, edges.source)
        heard = heard if edge_key is None else heard + edge_key
        value = value if edge_value is None else value + edge_value
        score = similarity.pairs(*similarity.prepare(query.index_select(-2, edges.target), heard))
        alpha = edges.softmax(score)  # (heads, edges)
        dropped = F.dropout(alpha, dropout)
        out = edges.add(dropped.unsqueeze(-1) * value, -2)
        return out, alpha.T.contiguous(), dropped.T.contiguous()
