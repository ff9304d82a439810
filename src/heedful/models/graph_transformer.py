"""GraphTransformer: transformer blocks whose tokens are nodes, over the graph's edges or over everyone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..attention.neighbors import Neighbors
from ..attention.similarity import Similarity
from ..graphs import Graph
from ..nn import Dropout, FeedForward, GraphTransformerConv, laplacian_positions, readout
from ..nn.checks import check_choice, check_count, check_share
from ..nn.graph.affine import Affine
from ..nn.graph.features import Features
from ..nn.transformer import Activation, Norm, make_norm
from .graph_parts import READOUTS, instead, override
from .model import Model


class GraphTransformer(Model):
    r"""x ← x + O ‖_h Σ_{j∈N(i)} α_ij (V x_j + U e_ij);  x ← x + FF(x), of norm(x) each;  x = E f + P u before

    Args:
        features, hidden, outputs: widths of what a node knows, of its state, of what is wanted.
        layers, heads: how many blocks, and ways to listen in each.
        neighbors: who is heard in place of the graph's edges: "everyone" (each graph of a batch keeps to
            itself). Edge features belong to edges, so they need None.
        positions: how many eigenvectors u of the graph's Laplacian a node is told; with everyone heard, they
            are all that is left of the graph. Signs are flipped at random in training.
        edge_features: width of e_ij, if edges have any.
        similarity: "softmax", or another kernel: "elu" makes full attention linear in the number of nodes.
        dropout: of the α and of what each branch adds.
        norm, activation: as in `TransformerBlock`.
        readout: None for a row a node; "sum", "mean", "max" … for a row a graph.

    Dwivedi & Bresson, 2021; Shi et al., IJCAI 2021.

    >>> import torch, heedful
    >>> ring = heedful.Graph.from_edges(list(range(9)), [*range(1, 9), 0])
    >>> model = heedful.models.GraphTransformer(16, 32, 3, neighbors="everyone", positions=4)
    >>> model(torch.randn(9, 16), ring).shape
    torch.Size([9, 3])
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        outputs: int,
        *,
        layers: int = 4,
        heads: int = 4,
        neighbors: Neighbors | str | None = None,
        positions: int = 0,
        edge_features: int | None = None,
        similarity: Similarity | str = "softmax",
        dropout: float = 0.1,
        norm: Norm = "layer",
        activation: Activation = "gelu",
        readout: str | None = None,
    ):
        super().__init__()
        check_count(
            "GraphTransformer", features=features, hidden=hidden, outputs=outputs, layers=layers, heads=heads
        )
        check_count("GraphTransformer", least=0, positions=positions)
        check_share("GraphTransformer", dropout=dropout)
        if hidden % heads:
            raise ValueError(
                f"GraphTransformer: hidden={hidden} does not divide into heads={heads}; change one."
            )
        if readout is not None:
            check_choice("GraphTransformer", "readout", readout, READOUTS)
        self.neighbors = override("GraphTransformer", neighbors, edge_features)
        self.readout, self.positions = readout, positions
        self.embed = Affine(features, hidden)
        self.place = nn.Linear(positions, hidden, bias=False) if positions else None
        self.blocks = nn.ModuleList(
            Block(hidden, heads, similarity, edge_features, dropout, norm, activation) for _ in range(layers)
        )
        self.norm = make_norm(norm, hidden)
        self.head = nn.Linear(hidden, outputs)

    def forward(
        self,
        x: Features,
        graph: Graph,
        edge_features: Tensor | None = None,
        *,
        positions: Tensor | None = None,
    ) -> Tensor:
        """(..., nodes, outputs), or (..., graphs, outputs); edge_features (edges, width).

        `positions` (nodes, positions) are those of `laplacian_positions` unless given: for many small graphs
        in ever new batches, work them out once a graph.
        """
        h = self.embed(x)
        if self.place is not None:
            h = h + self.place(self._where(graph, positions).to(h.dtype))
        heard = instead(self.neighbors, graph)
        for block in self.blocks:
            h = block(h, heard, edge_features)
        h = self.norm(h)
        return self.head(h if self.readout is None else readout(h, graph, self.readout))

    def _where(self, graph: Graph, given: Tensor | None) -> Tensor:
        places = laplacian_positions(graph, self.positions) if given is None else given
        if places.shape[-2:] != (graph.targets, self.positions):
            raise ValueError(
                f"GraphTransformer: positions has shape {tuple(places.shape)}; it takes "
                f"({graph.targets}, {self.positions})."
            )
        if not self.training:
            return places
        flips = torch.randint(2, (len(graph.sizes), self.positions), device=places.device) * 2 - 1
        return places * flips.index_select(0, graph.batch_index)


class Block(nn.Module):
    """x ← x + attention(norm(x)); x ← x + feed_forward(norm(x))."""

    def __init__(self, dim, heads, similarity, edge_features, dropout, norm, activation):
        super().__init__()
        self.attention_norm, self.feed_forward_norm = make_norm(norm, dim), make_norm(norm, dim)
        self.attention = GraphTransformerConv(
            dim,
            dim // heads,
            heads,
            similarity=similarity,
            skip=None,
            dropout=dropout,
            edge_features=edge_features,
        )
        self.output = nn.Linear(dim, dim)
        self.feed_forward = FeedForward(dim, activation=activation)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, graph, edge_features: Tensor | None) -> Tensor:
        heard = self.attention(self.attention_norm(x), graph, edge_features)
        x = x + self.dropout(self.output(heard))
        return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
