"""GCNConv: a sum over neighbours, each divided by the roots of both degrees."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...graphs import Graph
from ...graphs.spectral import NORMALIZATIONS
from ..checks import check_choice, check_count
from .features import Features, product
from .listening import ends
from .normalize import normalized


class GCNConv(nn.Module):
    r"""X' = D̂^−½ Â D̂^−½ X W + b,   Â = A + I,   D̂ its row sums

    Args:
        inputs, outputs: features of a node before and after.
        normalize: "symmetric" as above, "row" for D̂^−1 Â, None for Â as it is.
        self_loops: whether to add I; a node that has a loop keeps it.
        loop_weight: what an added loop weighs (2 is "improved GCN").
        bias: whether to add b.

    The graph's weights are the entries of A, and may be learned. Â normalised is worked out once for each
    graph and kept with it. Kipf & Welling, ICLR 2017.

    >>> import torch, heedful
    >>> graph = heedful.Graph.from_edges([0, 1, 1, 2], [1, 0, 2, 1], nodes=3)
    >>> heedful.nn.GCNConv(16, 32)(torch.randn(3, 16), graph).shape
    torch.Size([3, 32])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        normalize: str | None = "symmetric",
        self_loops: bool = True,
        loop_weight: float = 1.0,
        bias: bool = True,
    ):
        super().__init__()
        check_count("GCNConv", inputs=inputs, outputs=outputs)
        if normalize is not None:
            check_choice("GCNConv", "normalize", normalize, NORMALIZATIONS)
        self.inputs, self.outputs, self.normalize = inputs, outputs, normalize
        self.self_loops, self.loop_weight = self_loops, loop_weight
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Features, graph: Graph) -> Tensor:
        """x (..., nodes, inputs), dense or sparse; the result (..., nodes, outputs)."""
        (x, _), adjacency = ends("GCNConv", x, graph, (self.inputs,) * 2), self.adjacency(graph)
        dtype = self.weight.dtype
        # Â (X W) = (Â X) W: the sum over neighbours is taken where rows are narrower.
        if self.outputs <= self.inputs or isinstance(x, Graph):
            out = adjacency.propagate(product(x, self.weight)).to(dtype)
        else:
            out = adjacency.propagate(x).to(dtype) @ self.weight
        return out if self.bias is None else out + self.bias

    def adjacency(self, graph: Graph) -> Graph:
        """What the layer propagates over: Â normalised, as a graph whose weights are its entries."""
        if not graph.square and (self.normalize or self.self_loops):
            raise ValueError(
                f"GCNConv: {graph} is bipartite, and the degrees of its speakers are not known. Normalise "
                f"the whole graph first, graph.with_self_loops().normalized(), sample from that, and build "
                f"the layer with normalize=None, self_loops=False."
            )
        loops = self.loop_weight if self.self_loops else None
        if self.normalize is None:
            return graph if loops is None else graph.with_self_loops(weight=loops)
        return normalized(graph, self.normalize, loops, self.weight.dtype)

    def extra_repr(self) -> str:
        other = "" if self.normalize == "symmetric" else f", normalize={self.normalize!r}"
        return f"{self.inputs}, {self.outputs}{other}{'' if self.self_loops else ', self_loops=False'}"
