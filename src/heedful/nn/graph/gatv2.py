"""GATv2Conv: attention whose score mixes listener and speaker before it is taken."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...attention import Additive, attend
from ...attention.neighbors import Neighbors
from ...graphs import Graph
from ..checks import check_count, check_share
from .affine import Affine
from .heads import merge, options, split
from .listening import Inputs, along_loops, both, edge_rows, ends, listening_to_self, of_listeners, one_of
from .weights import attention_weights


class GATv2Conv(nn.Module):
    r"""out_i = ‖_h Σ_{j∈N(i)} α_ij (S x_j + c) + b,   α_ij ∝ exp(a·leaky(L x_i + d + S x_j + c + U e_ij))

    Args:
        inputs: features of a node, or a pair (of speakers, of listeners).
        dim: features of a head; the result has heads · dim, or dim if `concat` is off.
        heads: how many S, L, a there are, side by side.
        concat: heads side by side (‖), or their mean.
        slope: of the leaky ReLU below 0.
        dropout: share of the α zeroed in training.
        self_loops: whether everyone hears themselves; a node that has a loop keeps it, an added one carries
            the mean of the edge features the node hears.
        shared: the same for listeners and speakers: L = S, d = c.
        edge_features: width of e_ij, if edges have any.
        bias: whether to add b, c and d.

    Here a is applied after the leaky ReLU, so who is heard most can depend on who listens; in `GATConv` all
    rank their neighbours alike. Brody, Alon & Yahav, ICLR 2022.

    >>> import torch, heedful
    >>> graph = heedful.Graph.from_edges([0, 1, 1, 2], [1, 0, 2, 1], nodes=3)
    >>> heedful.nn.GATv2Conv(16, 8, heads=4)(torch.randn(3, 16), graph).shape
    torch.Size([3, 32])
    """

    def __init__(
        self,
        inputs: int | tuple[int, int],
        dim: int,
        heads: int = 1,
        *,
        concat: bool = True,
        slope: float = 0.2,
        dropout: float = 0.0,
        self_loops: bool = True,
        shared: bool = False,
        edge_features: int | None = None,
        bias: bool = True,
    ):
        super().__init__()
        self.inputs = both(inputs)
        check_count(
            "GATv2Conv", inputs=min(self.inputs), dim=dim, heads=heads, edge_features=edge_features or 1
        )
        check_share("GATv2Conv", dropout=dropout)
        if shared and self.inputs[0] != self.inputs[1]:
            raise ValueError(f"GATv2Conv(inputs={inputs}, shared=True): one weight takes one width.")
        self.dim, self.heads, self.concat, self.dropout = dim, heads, concat, dropout
        self.slope, self.self_loops, self.shared = slope, self_loops, shared
        self.edge_features = edge_features
        self.speaker = Affine(self.inputs[0], heads * dim, bias)
        self.listener = None if shared else Affine(self.inputs[1], heads * dim, bias)
        self.edge = Affine(edge_features, heads * dim, False) if edge_features else None
        self.score = nn.Parameter(torch.empty(heads, dim))
        self.bias = nn.Parameter(torch.empty(heads * dim if concat else dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for parameter in self.parameters():
            (nn.init.zeros_ if parameter.dim() == 1 else nn.init.xavier_uniform_)(parameter)

    @property
    def similarity(self) -> Additive:
        return Additive(self.slope, weight=self.score)

    def forward(self, x: Inputs, graph: Graph | Neighbors, edge_features: Tensor | None = None) -> Tensor:
        """x (..., nodes, inputs), dense or sparse, or a pair (speakers, listeners); edge_features (edges, …).

        In place of a graph, `graph` may be neighbors such as `Everyone()`.
        """
        listener, speaker, graph = self._parts(x, graph, edge_features)
        dropout = self.dropout if self.training else 0.0
        out = attend(listener, speaker, speaker, similarity=self.similarity, neighbors=graph, dropout=dropout)
        out = merge(out, self.concat)
        return out if self.bias is None else out + self.bias

    @torch.no_grad()
    def attention(self, x: Inputs, graph: Graph, edge_features: Tensor | None = None) -> Graph:
        """α_ij without dropout: the graph with weights (..., heads, edges), its added loops last."""
        listener, speaker, graph = self._parts(x, graph, edge_features)
        return attention_weights("GATv2Conv", listener, speaker, similarity=self.similarity, neighbors=graph)

    def _parts(self, x, graph, edge_features):
        """L x_i + d and S x_j + c, (..., heads, nodes, dim), and the graph with loops and U e_ij."""
        speakers, listeners = ends("GATv2Conv", x, graph, self.inputs)
        edge_features = edge_rows("GATv2Conv", edge_features, graph, self.edge_features)
        looped = listening_to_self("GATv2Conv", x, graph) if self.self_loops else graph
        speaker = self.speaker(speakers)
        listener = (self.speaker if self.listener is None else self.listener)(listeners)
        if edge_features is not None:
            key = self.edge(along_loops(edge_features, graph, looped))
            looped = looped.with_edges(key=split(key, self.heads))
        return split(of_listeners(listener, graph), self.heads), split(speaker, self.heads), looped

    def extra_repr(self) -> str:
        unusual = options(self, concat=True, dropout=0.0, self_loops=True, shared=False, edge_features=None)
        return ", ".join([f"{one_of(self.inputs)}, {self.dim}, heads={self.heads}", *unusual])
