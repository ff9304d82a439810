"""MessagePassing: any message along an edge, any way of putting messages together, any update."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ...graphs import Graph
from ..checks import check_choice
from .conv import AGGREGATES
from .edges import incidence
from .listening import no_graph


class MessagePassing(nn.Module):
    r"""x'_i = U(x_i, m_i),   m_i = □_{j∈N(i)} M(x_i, x_j, e_ij)

    Args:
        message: M, a module or function of (x_i, x_j), or of (x_i, x_j, e_ij) if the call brings edge
            features; each has a row an edge: (..., edges, width).
        update: U, a module or function of (x_i, m_i), a row a node; without one the messages are the result.
        aggregate: □, "sum", "mean", "max", "min", "median" or "std", feature by feature, 0 where nobody is
            heard. The graph's weights count in the first two.

    M may be anything, so this layer holds x_i, x_j and what M computes for every edge at once: memory grows
    with edges × width, several times over in training. Where M is linear in x_j, or a weight times W x_j, one
    of the other layers gives the same without. Gilmer et al., ICML 2017.

    >>> import torch, heedful
    >>> from torch import nn
    >>> layer = heedful.nn.MessagePassing(
    ...     message=heedful.nn.Jointly(nn.Linear(2 * 16 + 4, 32), nn.ReLU()),
    ...     update=heedful.nn.Jointly(nn.Linear(16 + 32, 16)),
    ...     aggregate="max",
    ... )
    >>> graph = heedful.Graph.from_edges([0, 1, 2], [1, 2, 0], nodes=3)
    >>> layer(torch.randn(3, 16), graph, torch.randn(3, 4)).shape
    torch.Size([3, 16])
    """

    def __init__(
        self, message: Callable[..., Tensor], update: Callable | None = None, *, aggregate: str = "sum"
    ):
        super().__init__()
        for name, given in (("message", message), ("update", update)):
            if not callable(given) and (name == "message" or given is not None):
                raise TypeError(f"MessagePassing({name}=…): takes a module or a function, got {given!r}.")
        check_choice("MessagePassing", "aggregate", aggregate, AGGREGATES)
        self.message, self.update, self.aggregate = message, update, aggregate

    def forward(
        self, x: Tensor | tuple[Tensor, Tensor], graph: Graph, edge_features: Tensor | None = None
    ) -> Tensor:
        """x (..., nodes, width), or a pair (speakers, listeners); edge_features (..., edges, any width)."""
        if not isinstance(graph, Graph):
            raise no_graph("MessagePassing", graph)
        speakers, listeners = x if isinstance(x, (tuple, list)) else (x, _first(x, graph))
        if edge_features is not None and edge_features.shape[-2] != graph.edges:
            raise ValueError(
                f"MessagePassing: edge_features has shape {tuple(edge_features.shape)}; "
                f"{graph} takes ({graph.edges}, width), one row an edge."
            )
        edges = incidence(graph)
        ends = (
            edges.hear.propagate(listeners),
            edges.speak.propagate(speakers),
        )  # x_i, x_j: (..., edges, width)
        messages = self.message(*ends) if edge_features is None else self.message(*ends, edge_features)
        if messages.dim() < 2 or messages.shape[-2] != graph.edges:
            raise ValueError(
                f"MessagePassing: message returned shape {tuple(messages.shape)}; {graph} takes "
                f"(..., {graph.edges}, width), one row an edge."
            )
        heard = edges.listen.with_edges(weight=graph.weight).aggregate(messages, self.aggregate)
        return heard if self.update is None else self.update(listeners, heard)

    def extra_repr(self) -> str:
        return f"aggregate={self.aggregate!r}"


class Jointly(nn.Sequential):
    """f(x, y, …) = the modules, one after another, applied to x, y, … side by side.

    >>> import torch, heedful
    >>> heedful.nn.Jointly(torch.nn.Linear(5, 3), torch.nn.ReLU())(torch.randn(7, 2), torch.randn(7, 3)).shape
    torch.Size([7, 3])
    """

    def forward(self, *inputs: Tensor) -> Tensor:  # type: ignore[override]
        lead = torch.broadcast_shapes(*(x.shape[:-1] for x in inputs))
        return super().forward(torch.cat([x.expand(*lead, -1) for x in inputs], -1))


def _first(x: Tensor, graph: Graph) -> Tensor:
    """The listeners among those who speak: everyone, or in the layers of a sample the first."""
    if not graph.square and graph.targets > graph.sources:
        raise ValueError(
            f"MessagePassing: {graph} has more listeners than speakers; pass (speakers, listeners)."
        )
    return x if graph.square else x[..., : graph.targets, :]
