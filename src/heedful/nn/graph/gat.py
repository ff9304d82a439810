"""GATConv: attention over neighbours, scored by one number a speaker and one a listener."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...attention import Additive, attend
from ...attention.neighbors import Neighbors
from ...graphs import Graph
from ...kernels import many_rows
from ...kernels.gat_packed import packed_attention, packs
from ...kernels.gat_stacked import stacked_attention, stacks
from ...kernels.sparse import Structure
from ..checks import check_count, check_share
from .features import Features, product
from .heads import merge, options, scores, split
from .listening import Inputs, along_loops, both, edge_rows, ends, listening_to_self, of_listeners, one_of
from .weights import attention_weights


class GATConv(nn.Module):
    r"""out_i = ‖_h Σ_{j∈N(i)} α_ij W x_j + b,   α_ij ∝ exp(leaky(l·W x_i + s·W x_j + a·U e_ij))

    Args:
        inputs: features of a node, or a pair (of speakers, of listeners) with a W each.
        dim: features of a head; the result has heads · dim, or dim if `concat` is off.
        heads: how many W, l, s there are, side by side.
        concat: heads side by side (‖), or their mean.
        slope: of the leaky ReLU below 0.
        dropout: share of the α zeroed in training.
        self_loops: whether everyone hears themselves; a node that has a loop keeps it, an added one carries
            the mean of the edge features the node hears.
        shared: one l and s for all heads, instead of one each.
        edge_features: width of e_ij, if edges have any.
        bias: whether to add b.

    No tensor with a row an edge is made, but for edge features: then one number an edge and head.
    Veličković et al., ICLR 2018.

    >>> import torch, heedful
    >>> graph = heedful.Graph.from_edges([0, 1, 1, 2], [1, 0, 2, 1], nodes=3)
    >>> layer = heedful.nn.GATConv(16, 8, heads=4)
    >>> layer(torch.randn(3, 16), graph).shape
    torch.Size([3, 32])
    >>> layer.attention(torch.randn(3, 16), graph)           # its weights are α: 4 edges and 3 loops
    Graph(3 nodes, 7 edges, weight)
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
            "GATConv", inputs=min(self.inputs), dim=dim, heads=heads, edge_features=edge_features or 1
        )
        check_share("GATConv", dropout=dropout)
        self.dim, self.heads, self.concat, self.dropout = dim, heads, concat, dropout
        self.self_loops, self.shared, self.edge_features = self_loops, shared, edge_features
        self.similarity = Additive(slope)
        vectors = 1 if shared else heads
        self.weight = nn.Parameter(torch.empty(self.inputs[0], heads * dim))
        separate = isinstance(inputs, (tuple, list))
        self.weight_listeners = nn.Parameter(torch.empty(self.inputs[1], heads * dim)) if separate else None
        self.weight_edges = nn.Parameter(torch.empty(edge_features, heads * dim)) if edge_features else None
        self.listener = nn.Parameter(torch.empty(vectors, dim))
        self.speaker = nn.Parameter(torch.empty(vectors, dim))
        self.edge = nn.Parameter(torch.empty(vectors, dim)) if edge_features else None
        self.bias = nn.Parameter(torch.empty(heads * dim if concat else dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            (nn.init.zeros_ if name == "bias" else nn.init.xavier_uniform_)(parameter)

    def forward(self, x: Inputs, graph: Graph | Neighbors, edge_features: Tensor | None = None) -> Tensor:
        """x (..., nodes, inputs), dense or sparse, or a pair (speakers, listeners); edge_features (edges, …).

        In place of a graph, `graph` may be neighbors such as `Everyone()`.
        """
        dropout = self.dropout if self.training else 0.0
        if edge_features is None and self._packs(x, graph):
            return self._on_gpu(self._packed, x, graph, dropout)
        if edge_features is None and self._stacks(x, graph):
            return self._on_gpu(self._stacked, x, graph, dropout)
        listener, speaker, z, graph = self._parts(x, graph, edge_features)
        out = attend(listener, speaker, z, similarity=self.similarity, neighbors=graph, dropout=dropout)
        out = merge(out, self.concat)
        return out if self.bias is None else out + self.bias

    @torch.no_grad()
    def attention(self, x: Inputs, graph: Graph, edge_features: Tensor | None = None) -> Graph:
        """α_ij without dropout: the graph with weights (..., heads, edges), its added loops last."""
        listener, speaker, _, graph = self._parts(x, graph, edge_features)
        return attention_weights("GATConv", listener, speaker, similarity=self.similarity, neighbors=graph)

    def _parts(self, x, graph, edge_features):
        """l·W x_i, s·W x_j, W x_j, (..., heads, nodes, 1 or dim); the graph with loops and a·U e_ij."""
        speakers, listeners = ends("GATConv", x, graph, self.inputs)
        edge_features = edge_rows("GATConv", edge_features, graph, self.edge_features)
        looped = listening_to_self("GATConv", x, graph) if self.self_loops else graph
        z = product(speakers, self.weight)  # (..., nodes, heads · dim)
        if speakers is listeners and self.weight_listeners is None:
            listener, speaker = scores(z, self.listener, self.speaker)
            listener = of_listeners(listener, graph)
        else:
            own = self.weight if self.weight_listeners is None else self.weight_listeners
            (speaker,) = scores(z, self.speaker)
            (listener,) = scores(of_listeners(product(listeners, own), graph), self.listener)
        if edge_features is not None:
            key = along_loops(self._edge_scores(edge_features), graph, looped)  # (..., edges, heads)
            looped = looped.with_edges(key=key.transpose(-1, -2).unsqueeze(-1))
        return listener, speaker, split(z, self.heads), looped

    def _packs(self, x, graph) -> bool:
        """Whether q, k and v can lie side by side: one plain table for all, an eager call on the GPU."""
        return packs(self.weight) and self._plain(x, graph)

    def _stacks(self, x, graph) -> bool:
        """Whether copies of the layer can be run as one, where they lie: the same under vmap."""
        return stacks(self.weight) and self._plain(x, graph)

    def _plain(self, x, graph) -> bool:
        if self.weight_listeners is not None or self.edge_features:
            return False
        plain = isinstance(graph, Graph) and graph.square and not graph.attributes
        alike = not isinstance(x, Tensor) or (x.dim() == 2 and x.dtype == self.weight.dtype)
        return plain and isinstance(x, (Tensor, Graph)) and alike and not torch.is_autocast_enabled("cuda")

    def _on_gpu(self, attention, x, graph, dropout: float) -> Tensor:
        """The layer by one of the two ways below, which add the bias themselves where heads stay apart."""
        (x, _), looped = ends("GATConv", x, graph, self.inputs), graph
        if self.self_loops:
            looped = listening_to_self("GATConv", x, graph)
        structure = Structure(
            looped.rowptr, looped.col, looped.edge,
            lambda: (looped.colptr, looped.row, looped.edge_transposed),
        )  # fmt: skip
        seed = torch.randint(torch.iinfo(torch.int64).max, (1,), device=looped.device) if dropout else None
        inside = self.concat or self.heads == 1
        options = {"slope": self.similarity.slope, "dropout": dropout, "seed": seed}
        out = attention(x, structure, bias=self.bias if inside else None, **options)
        if inside:
            return out
        out = out.unflatten(1, (self.heads, self.dim)).mean(1)
        return out if self.bias is None else out + self.bias

    def _packed(self, x: Features, structure: Structure, **options) -> Tensor:
        """l·W x = (W l)·x: one product with [W | W l | W s] gives all that the kernels ask for."""
        vectors = torch.stack((self.listener, self.speaker)).expand(2, self.heads, self.dim)
        scores = (self.weight.view(-1, 1, self.heads, self.dim) * vectors).sum(-1)  # (inputs, 2, heads)
        weight = torch.cat((self.weight, scores.flatten(1)), 1)
        table = many_rows.product(x, weight) if isinstance(x, Tensor) else product(x, weight)
        return packed_attention(table, self.heads, structure, **options)

    def _stacked(self, x: Features, structure: Structure, **options) -> Tensor:
        z = x @ self.weight if isinstance(x, Tensor) else product(x, self.weight)
        listener, speaker = (a.expand(self.heads, self.dim) for a in (self.listener, self.speaker))
        return stacked_attention(z, listener, speaker, structure, **options)

    def _edge_scores(self, features: Tensor) -> Tensor:
        """a·(U e) = (Uᵀ a)·e, so that U e need not be formed for every edge: (..., edges, heads)."""
        assert self.weight_edges is not None and self.edge is not None
        (score,) = scores(self.weight_edges, self.edge)  # (heads, edge features, 1)
        return features @ score.squeeze(-1).T

    def extra_repr(self) -> str:
        unusual = options(self, concat=True, dropout=0.0, self_loops=True, shared=False, edge_features=None)
        return ", ".join([f"{one_of(self.inputs)}, {self.dim}, heads={self.heads}", *unusual])
