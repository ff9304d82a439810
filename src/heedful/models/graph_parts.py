"""What the graph models share: what follows a layer, who is heard instead, and graphs one a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn import functional as F

from ..attention import Everyone, Segments
from ..attention.neighbors import Neighbors
from ..graphs import Graph
from ..nn import Dropout
from ..nn.checks import check_choice
from ..nn.graph.affine import Affine
from ..nn.graph.features import Features, dense
from ..nn.graph.listening import of_listeners
from ..phrases import as_neighbors

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "tanh": F.tanh,
    "none": lambda x: x,
}
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "batch": nn.BatchNorm1d,
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
}
READOUTS = ("sum", "mean", "max", "min", "median", "std")

Graphs = Graph | Sequence[Graph]


class After(nn.Module):
    """σ(norm(z)) + S x: what follows a layer that made z out of x. S is the identity where widths allow."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        activation: str = "none",
        norm: str | None = None,
        residual: bool = False,
    ):
        super().__init__()
        check_choice("a graph model", "activation", activation, ACTIVATIONS)
        if norm is not None:
            check_choice("a graph model", "norm", norm, NORMS)
        self.activation, self.residual = activation, residual
        self.norm = None if norm is None else NORMS[norm](outputs)
        self.skip = Affine(inputs, outputs, bias=False) if residual and inputs != outputs else None

    def forward(self, z: Tensor, x: Features, graph: Graph, dropout: nn.Module | None = None) -> Tensor:
        """With `dropout`, what it makes of the result."""
        z = z if self.norm is None else self.norm(z)
        if isinstance(dropout, Dropout) and self.activation == "relu" and not self.residual:
            return dropout(z, relu=True)
        z = ACTIVATIONS[self.activation](z)
        if self.residual:
            own = dense(x, z.dtype) if self.skip is None else self.skip(x)
            z = z + of_listeners(own, graph)
        return z if dropout is None else dropout(z)

    def extra_repr(self) -> str:
        return f"{self.activation}{', residual' if self.residual else ''}"


def each(where: str, graph: Graphs, layers: int) -> list[Graph]:
    """One graph a layer: the same one, or those of a sample (`Graph.sample(...).layers`)."""
    if isinstance(graph, Graph):
        return [graph] * layers
    graphs = list(graph) if isinstance(graph, Sequence) else []
    if len(graphs) != layers or not all(isinstance(one, Graph) for one in graphs):
        raise ValueError(
            f"{where}: graph must be a Graph, or {layers} of them, one a layer, as in sample.layers; "
            f"got {graph!r}."
        )
    return graphs


def override(where: str, neighbors: Neighbors | str | None, edge_features: int | None) -> Neighbors | None:
    """The pattern a model is to hear in place of the graph's edges, if any."""
    found = as_neighbors(neighbors)
    if found is not None and not isinstance(found, Neighbors):
        raise TypeError(
            f"{where}(neighbors={neighbors!r}): takes neighbors such as Everyone(), or their name."
        )
    if found is not None and edge_features:
        raise ValueError(
            f"{where}(neighbors={neighbors!r}, edge_features={edge_features}): whoever is heard without an "
            f"edge has no edge features; leave one of the two out."
        )
    return found


def instead(neighbors: Neighbors | None, graph: Graph) -> Graph | Neighbors:
    """Who is heard: the graph's edges, or in their place a pattern, within each graph of a batch."""
    if neighbors is None:
        return graph
    if len(graph.sizes) == 1:
        return neighbors
    own = Segments([nodes for nodes, _ in graph.sizes])
    return own if isinstance(neighbors, Everyone) else neighbors & own


def rows(features: Tensor | None, graph: Graph) -> Tensor | None:
    """The features of this graph's edges: those of a sample's layers are the first of the sample's."""
    return None if features is None else features[..., : graph.edges, :]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """In eval mode for a while; every part returns to the mode it was in."""
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training
