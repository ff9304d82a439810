"""SAGEConv: what the neighbours say on average (or at most, or in all), and what the node says itself."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ...graphs import Graph
from .edges import Edges
from .layer import Layer, Pair, check_channels, count_nodes, narrower_first, split_pair
from .linear import Linear

LINEAR = ("mean", "sum", "add")


class SAGEConv(Layer):
    r"""out_i = W_l · mean_{j∈N(i)} x_j + b + W_r x_i

    PyG's `SAGEConv`: the same arguments, the same `state_dict`, the same results, faster.

    Args:
        in_channels: size of x, −1 to see it at the first call; a pair for a bipartite graph.
        out_channels: size of the output.
        aggr: "mean", "sum" (or "add"), "max", "min", "var" or "std", or a list of them, set side by side.
        normalize: scale every output to length 1.
        root_weight: add W_r x_i.
        project: let x_j be relu(W x_j + b') first.
        bias: add b.

    >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2], [1, 2, 3]])
    >>> SAGEConv(16, 8, aggr="max")
    SAGEConv(16, 8, aggr=max)
    >>> SAGEConv(16, 8)(x, edge_index).shape
    torch.Size([4, 8])
    """

    node_dim = -2
    aggregations = ("mean", "sum", "add", "max", "min", "var", "std")

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        aggr: str | list[str] = "mean",
        normalize: bool = False,
        root_weight: bool = True,
        project: bool = False,
        bias: bool = True,
        **kwargs,
    ):
        super().__init__(aggr, **kwargs)
        name = type(self).__name__
        sources, targets = check_channels(in_channels, out_channels, name)
        self.kinds = list(aggr) if isinstance(aggr, (list, tuple)) else [aggr]
        if not self.kinds:
            raise ValueError(
                f"{name}: aggr is an empty list; name at least one of {', '.join(self.aggregations)}."
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        self._widths = sources, targets if root_weight else -1  # else nobody looks at what targets have
        self.normalize, self.root_weight, self.project = normalize, root_weight, project
        if project:
            if sources < 0:
                raise ValueError(f"{name}: project=True needs to know in_channels, got {in_channels!r}.")
            self.lin = Linear(sources, sources)
        self.lin_l = Linear(len(self.kinds) * sources, out_channels, bias=bias)
        if root_weight:
            self.lin_r = Linear(targets, out_channels, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        for linear in self.children():
            cast(Linear, linear).reset_parameters()

    def forward(self, x: Pair, edge_index: Tensor | Graph, size: tuple[int, int] | None = None) -> Tensor:
        """(..., targets, out_channels); x is (..., nodes, in_channels), or a pair for sources and targets."""
        name = type(self).__name__
        x_source, x_target = split_pair(x, name, self._widths, leading=True)
        if self.project:
            x_source = self.lin(x_source).relu()
        edges = self._edges(edge_index, x_source, *count_nodes(x_source, x_target, size, name))
        out = self._heard(x_source, edges)
        if self.root_weight and x_target is not None:
            out = out + self.lin_r(x_target)
        return F.normalize(out, dim=-1) if self.normalize else out

    def _heard(self, x: Tensor, edges: Edges) -> Tensor:
        """W_l · mean_j x_j + b, or mean_j W_l x_j + b where that is less to carry along the edges."""
        linear = len(self.kinds) == 1 and self.kinds[0] in LINEAR and isinstance(self.lin_l, Linear)
        if linear and not narrower_first(x, x.shape[-1], self.out_channels):
            out = _aggregate(F.linear(x, self.lin_l.weight_for(x)), edges, self.kinds[0])
            return out if self.lin_l.bias is None else out + self.lin_l.bias
        heard = [_aggregate(x, edges, kind) for kind in self.kinds]
        return self.lin_l(heard[0] if len(heard) == 1 else torch.cat(heard, -1))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, aggr={self.aggr})"


def _aggregate(x: Tensor, edges: Edges, kind: str) -> Tensor:
    if kind != "std":
        return edges.aggregate(x, "sum" if kind == "add" else kind)
    variance = edges.aggregate(x, "var")
    # As in PyG: below a variance of 1e-5 it is 0, and so is its gradient.
    spread = variance > 1e-5
    return torch.where(spread, torch.where(spread, variance, 1).sqrt(), 0)
