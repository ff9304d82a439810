"""GraphTransformerConv: dot-product attention over neighbours, edges heard in keys and values."""

from __future__ import annotations

import torch
from torch import Tensor

from ...attention import attend
from ...attention.neighbors import Neighbors
from ...attention.similarity import Similarity
from ...graphs import Graph
from ...phrases import as_similarity
from ..checks import check_count, check_share
from ..learning import Similar
from .affine import Affine
from .heads import merge, options, split
from .listening import Inputs, both, edge_rows, ends, of_listeners, one_of
from .weights import attention_weights


class GraphTransformerConv(Similar):
    r"""out_i = ‖_h Σ_{j∈N(i)} α_ij (V x_j + U e_ij) + S x_i,   α_ij ∝ sim(Q x_i, K x_j + U e_ij)

    Args:
        inputs: features of a node, or a pair (of speakers, of listeners).
        dim: features of a head; the result has heads · dim, or dim if `concat` is off.
        heads: how many Q, K, V, U there are, side by side.
        concat: heads side by side (‖), or their mean.
        similarity: "softmax" for exp(q·k/√dim), or any other, as text or a `Similarity`.
        skip: "linear" adds S x_i; "gated" mixes the two, β S x_i + (1 − β) Σ…, by a β that is learned from
            both; None leaves one's own state out.
        dropout: share of the α zeroed in training.
        edge_features: width of e_ij, if edges have any.
        bias: whether Q, K, V and S add a constant.

    Shi et al., "Masked Label Prediction", IJCAI 2021. With `Everyone()` in place of the graph it is a
    transformer's attention.

    >>> import torch, heedful
    >>> graph = heedful.Graph.from_edges([0, 1, 1, 2], [1, 0, 2, 1], nodes=3)
    >>> layer = heedful.nn.GraphTransformerConv(16, 8, heads=4, edge_features=5)
    >>> layer(torch.randn(3, 16), graph, torch.randn(4, 5)).shape
    torch.Size([3, 32])
    """

    def __init__(
        self,
        inputs: int | tuple[int, int],
        dim: int,
        heads: int = 1,
        *,
        concat: bool = True,
        similarity: Similarity | str = "softmax",
        skip: str | None = "linear",
        dropout: float = 0.0,
        edge_features: int | None = None,
        bias: bool = True,
    ):
        super().__init__()
        self.inputs = both(inputs)
        check_count(
            "GraphTransformerConv",
            inputs=min(self.inputs),
            dim=dim,
            heads=heads,
            edge_features=edge_features or 1,
        )
        check_share("GraphTransformerConv", dropout=dropout)
        if skip not in ("linear", "gated", None):
            raise ValueError(f"GraphTransformerConv(skip={skip!r}): takes 'linear', 'gated' or None.")
        self.dim, self.heads, self.concat, self.dropout = dim, heads, concat, dropout
        self._take("GraphTransformerConv", as_similarity(similarity))
        self.skip, self.edge_features = skip, edge_features
        wide, outputs = heads * dim, heads * dim if concat else dim
        self.query = Affine(self.inputs[1], wide, bias)
        self.key = Affine(self.inputs[0], wide, bias)
        self.value = Affine(self.inputs[0], wide, bias)
        self.edge = Affine(edge_features, wide, False) if edge_features else None
        self.own = Affine(self.inputs[1], outputs, bias) if skip else None
        self.gate = Affine(3 * outputs, 1, False) if skip == "gated" else None

    def forward(self, x: Inputs, graph: Graph | Neighbors, edge_features: Tensor | None = None) -> Tensor:
        """x (..., nodes, inputs), dense or sparse, or a pair (speakers, listeners); edge_features (edges, …).

        In place of a graph, `graph` may be neighbors such as `Everyone()`.
        """
        query, key, value, listeners, heard = self._parts(x, graph, edge_features)
        dropout = self.dropout if self.training else 0.0
        out = attend(query, key, value, similarity=self.similarity, neighbors=heard, dropout=dropout)
        out = merge(out, self.concat)
        if self.own is None:
            return out
        own = of_listeners(self.own(listeners), graph)
        if self.gate is None:
            return out + own
        beta = self.gate(torch.cat([out, own, out - own], -1)).sigmoid()
        return beta * own + (1 - beta) * out

    @torch.no_grad()
    def attention(self, x: Inputs, graph: Graph, edge_features: Tensor | None = None) -> Graph:
        """α_ij without dropout: the graph with weights (..., heads, edges) in the caller's order."""
        query, key, _, _, heard = self._parts(x, graph, edge_features)
        return attention_weights(
            "GraphTransformerConv", query, key, similarity=self.similarity, neighbors=heard
        )

    def _parts(self, x, graph, edge_features):
        """Q x_i, K x_j and V x_j, (..., heads, nodes, dim); the listeners; the graph with U e_ij."""
        speakers, listeners = ends("GraphTransformerConv", x, graph, self.inputs)
        edge_features = edge_rows("GraphTransformerConv", edge_features, graph, self.edge_features)
        query = split(of_listeners(self.query(listeners), graph), self.heads)
        key, value = split(self.key(speakers), self.heads), split(self.value(speakers), self.heads)
        if self.edge is not None:
            edge = split(self.edge(edge_features), self.heads)
            graph = graph.with_edges(key=edge, value=edge)
        return query, key, value, listeners, graph

    def extra_repr(self) -> str:
        unusual = options(self, concat=True, skip="linear", dropout=0.0)
        shown = f"{one_of(self.inputs)}, {self.dim}, heads={self.heads}, similarity={self.similarity}"
        return ", ".join([shown, *unusual])

    def reset_parameters(self) -> None:
        for part in (self.query, self.key, self.value, self.edge, self.own, self.gate):
            if part is not None:
                part.reset_parameters()
