"""GCNConv: a weighted sum over neighbours, weights by degree."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...graphs import Graph
from .edges import Edges
from .layer import Layer, check_channels, narrower_first, split_pair
from .linear import Linear

Adjacency = tuple[Edges, Tensor | None, Tensor | None]


class GCNConv(Layer):
    r"""out = D^−½ (A + I) D^−½ X W + b,   that is   out_i = Σ_{j∈N(i)∪{i}} w_ij / √(d_i d_j) · W x_j + b

    PyG's `GCNConv`: the same arguments, the same `state_dict`, the same results, faster.

    Args:
        in_channels: size of x, −1 to see it at the first call.
        out_channels: size of the output.
        improved: new loops weigh 2 instead of 1. As in PyG this counts only where edge_weight is given.
        cached: keep the weights of the first call for all that follow, whatever graph those are given.
        add_self_loops: give every node without a self-loop one; if left out, as `normalize` says.
        normalize: divide by the roots of the degrees d_i = Σ_j w_ij.
        bias: add b.

    >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> GCNConv(16, 8)(x, edge_index).shape
    torch.Size([4, 8])
    """

    node_dim = -2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        cached: bool = False,
        add_self_loops: bool | None = None,
        normalize: bool = True,
        bias: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        name = type(self).__name__
        if not isinstance(in_channels, int):
            raise ValueError(
                f"{name}: in_channels must be a number, got {in_channels!r}; no bipartite graphs here."
            )
        check_channels(in_channels, out_channels, name)
        add_self_loops = normalize if add_self_loops is None else add_self_loops
        if add_self_loops and not normalize:
            raise ValueError(
                f"{name}: add_self_loops=True without normalize; add them to edge_index and edge_weight, or "
                "normalize."
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.improved, self.cached = improved, cached
        self.add_self_loops, self.normalize = add_self_loops, normalize
        self.lin = Linear(in_channels, out_channels, bias=False, glorot=True)
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, and forget what `cached` kept."""
        self.lin.reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        self._first: Adjacency | None = None

    def __getstate__(self):
        # A copy or a file gets the layer, not the graph it last ran on.
        return {**self.__dict__, "_first": None}

    def forward(self, x: Tensor, edge_index: Tensor | Graph, edge_weight: Tensor | None = None) -> Tensor:
        """(..., nodes, out_channels) for x (..., nodes, in_channels)."""
        name = type(self).__name__
        if not isinstance(x, Tensor):
            hint = "; bipartite graphs need SAGEConv or GATConv" if isinstance(x, (tuple, list)) else ""
            raise ValueError(f"{name}: x must be a tensor, got a {type(x).__name__}{hint}.")
        split_pair(x, name, self.in_channels, leading=True)
        edges, weight, root = self._first or self._adjacency(x, edge_index, edge_weight)
        if self.cached and self.normalize:
            self._first = edges, weight, root

        def propagate(x):
            """D^−½ A D^−½ x, or A x."""
            return edges.propagate(x, weight) if root is None else root * edges.propagate(root * x, weight)

        first = narrower_first(x, x.shape[-1], self.out_channels)
        out = self.lin(propagate(x)) if first else propagate(self.lin(x))
        return out if self.bias is None else out + self.bias

    def _adjacency(self, x: Tensor, edge_index: Tensor | Graph, edge_weight: Tensor | None) -> Adjacency:
        """The edges, loops among them, what each weighs, and D^−½."""
        if isinstance(edge_index, Graph) and edge_index.weight is not None:
            edge_weight = edge_index.weight if edge_weight is None else edge_weight
            edge_index = edge_index.with_edges(weight=None)
        nodes = x.shape[-2]
        edges = self._edges(edge_index, x, nodes, nodes, loops=self.add_self_loops)
        if edge_weight is not None:
            edge_weight = self._check_edge_input("edge_weight", edge_weight, edges)
            if edge_weight.numel() != edges.given:
                raise ValueError(
                    f"GCNConv: edge_weight has shape {tuple(edge_weight.shape)}; it takes one number an edge."
                )
            edge_weight = edges.weights(edge_weight.reshape(-1), 2.0 if self.improved else 1.0)
        if not self.normalize:
            return edges, edge_weight, None
        return edges, edge_weight, edges.scale(edge_weight, 0.5, x.dtype)
