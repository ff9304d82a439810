"""GraphConv: what the neighbours say on average, and what one knows oneself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...graphs import Graph
from ..checks import check_choice, check_count
from .features import dense, product
from .listening import Inputs, both, ends, of_listeners, one_of

AGGREGATES = ("sum", "mean", "max", "min", "median", "std")
LINEAR = ("sum", "mean")  # these commute with W


class GraphConv(nn.Module):
    r"""out_i = W □_{j∈N(i)} x_j + B x_i + b,   □ the mean unless `aggregate` says otherwise

    Args:
        inputs: features of a node, or a pair (of speakers, of listeners).
        outputs: features of the result.
        aggregate: "mean", "sum", "max", "min", "median" or "std" of the neighbours, feature by feature. The
            graph's weights count in the first two.
        own: whether a node also hears itself, through B.
        bias: whether to add b.

    >>> import torch, heedful
    >>> graph = heedful.Graph.from_edges([0, 1, 2], [1, 2, 0], nodes=3)
    >>> heedful.nn.GraphConv(16, 32, aggregate="median")(torch.randn(3, 16), graph).shape
    torch.Size([3, 32])
    """

    def __init__(
        self,
        inputs: int | tuple[int, int],
        outputs: int,
        *,
        aggregate: str = "mean",
        own: bool = True,
        bias: bool = True,
    ):
        super().__init__()
        self.inputs = both(inputs)
        check_count("GraphConv", inputs=min(self.inputs), outputs=outputs)
        check_choice("GraphConv", "aggregate", aggregate, AGGREGATES)
        self.outputs, self.aggregate = outputs, aggregate
        self.weight = nn.Parameter(torch.empty(self.inputs[0], outputs))
        self.own = nn.Parameter(torch.empty(self.inputs[1], outputs)) if own else None
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        if self.own is not None:
            nn.init.xavier_uniform_(self.own)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Inputs, graph: Graph) -> Tensor:
        """x (..., nodes, inputs), or a pair (speakers, listeners); the result (..., listeners, outputs)."""
        speakers, listeners = ends("GraphConv", x, graph, self.inputs)
        out = self._heard(speakers, graph)
        if self.own is not None:
            out = out + of_listeners(product(listeners, self.own), graph)
        return out if self.bias is None else out + self.bias

    def _heard(self, x, graph: Graph) -> Tensor:
        """W □ x_j, or □ W x_j where that is the same and narrower."""
        dtype = self.weight.dtype
        if self.aggregate in LINEAR and (self.outputs < self.inputs[0] or isinstance(x, Graph)):
            return graph.aggregate(product(x, self.weight), self.aggregate).to(dtype)
        return graph.aggregate(dense(x, dtype), self.aggregate).to(dtype) @ self.weight

    def extra_repr(self) -> str:
        return f"{one_of(self.inputs)}, {self.outputs}, aggregate={self.aggregate!r}"
