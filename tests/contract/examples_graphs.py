"""Examples of layers and models over graphs: dim 0 counts nodes, which may be relabelled, not separated."""

from __future__ import annotations

import torch
from torch.nn import Linear, ReLU

from heedful import Graph, models, nn

from .example import Example

NODES, EDGES = 9, 30


def graph(weighted: bool = False, nodes: int = NODES) -> Graph:
    """Repeated edges, loops, and nodes that hear nobody."""
    source, target = torch.randint(nodes, (EDGES,)), torch.randint(2, nodes, (EDGES,))
    source[:2], target[:2], source[2] = 4, 5, target[2]
    found = Graph.from_edges(
        source, target, nodes=nodes, weight=torch.rand(EDGES) + 0.1 if weighted else None
    )
    # How many loops are missing depends on the data, which torch.compile cannot see. Found before, they are
    # there.
    found.with_self_loops()
    return found


def plain(width: int, *, weighted: bool = False):
    def inputs(dtype):
        g = graph(weighted)
        return torch.randn(NODES, width, dtype=dtype), g.with_edges(
            weight=None if g.weight is None else g.weight.to(dtype)
        )

    return inputs


def with_edges(width: int, edge_width: int):
    def inputs(dtype):
        return torch.randn(NODES, width, dtype=dtype), graph(), torch.randn(EDGES, edge_width, dtype=dtype)

    return inputs


def relabelled(inputs, permutation):
    """Edges keep their numbers, so what belongs to them stays."""
    x, g, *rest = inputs
    return x[permutation], g.permute(permutation), *rest


def over_graph(name: str, build, inputs, width: int, **options) -> Example:
    options = {"batch": False, "equivariant": relabelled} | options
    return Example(name, build, inputs, (options.pop("rows", NODES), width), **options)


def message_passing(aggregate: str):
    return nn.MessagePassing(
        nn.Jointly(Linear(2 * 6 + 3, 5), ReLU()), nn.Jointly(Linear(6 + 5, 4)), aggregate=aggregate
    )


def molecules(dtype):
    g = Graph.batch([graph(nodes=6), Graph.complete(3)])
    return torch.randn(9, 6, dtype=dtype), g, torch.randn(g.edges, 3, dtype=dtype)


def edge_index(dtype):
    return torch.randn(NODES, 6, dtype=dtype), torch.randint(NODES, (2, EDGES))


def renamed(inputs, permutation):
    x, index = inputs
    return x[permutation], permutation.argsort()[index]


EXAMPLES = [
    over_graph(
        "gcn over edges",
        lambda: models.OverEdges(models.GCN(6, 5, 3)),
        edge_index,
        3,
        equivariant=renamed,
    ),
    Example("dropout", lambda: nn.Dropout(0.5), lambda dtype: (torch.randn(4, 6, dtype=dtype),), (4, 6)),
    Example(
        "jointly",
        lambda: nn.Jointly(Linear(5, 3)),
        lambda dtype: (torch.randn(4, 2, dtype=dtype), torch.randn(4, 3, dtype=dtype)),
        (4, 3),
        batch=False,
    ),
    *(
        over_graph(
            f"graph conv, {aggregate}",
            lambda aggregate=aggregate: nn.GraphConv(6, 4, aggregate=aggregate),
            plain(6, weighted=aggregate == "mean"),
            4,
        )
        for aggregate in ("mean", "sum", "max", "median", "std")
    ),
    over_graph("gcn conv", lambda: nn.GCNConv(6, 4), plain(6), 4),
    over_graph("gcn conv, wider, weighted", lambda: nn.GCNConv(6, 8), plain(6, weighted=True), 8),
    over_graph("gat conv", lambda: nn.GATConv(6, 4, 3, dropout=0.5), plain(6), 12),
    over_graph(
        "gat conv, edge features, averaged",
        lambda: nn.GATConv(6, 4, 3, concat=False, edge_features=2, shared=True),
        with_edges(6, 2),
        4,
    ),
    over_graph("gatv2 conv", lambda: nn.GATv2Conv(6, 4, 3), plain(6), 12),
    over_graph(
        "gatv2 conv, edge features, shared",
        lambda: nn.GATv2Conv(6, 4, 3, edge_features=2, shared=True),
        with_edges(6, 2),
        12,
    ),
    over_graph("graph transformer conv", lambda: nn.GraphTransformerConv(6, 4, 3), plain(6), 12),
    over_graph(
        "graph transformer conv, gated, edge features",
        lambda: nn.GraphTransformerConv(6, 4, 3, skip="gated", edge_features=2),
        with_edges(6, 2),
        12,
    ),
    *(
        over_graph(
            f"message passing, {aggregate}",
            lambda aggregate=aggregate: message_passing(aggregate),
            with_edges(6, 3),
            4,
        )
        for aggregate in ("sum", "max", "median")
    ),
    over_graph("gcn", lambda: models.GCN(6, 5, 3, layers=3, norm="layer", residual=True), plain(6), 3),
    over_graph(
        "gat", lambda: models.GAT(6, 4, 3, layers=3, heads=2, residual=True, norm="batch"), plain(6), 3
    ),
    over_graph("gat, everyone", lambda: models.GAT(6, 4, 3, neighbors="everyone"), plain(6), 3),
    over_graph("gat, edge features", lambda: models.GAT(6, 4, 3, edge_features=2), with_edges(6, 2), 3),
    over_graph("mpnn", lambda: models.MPNN(6, 8, 3, edge_features=2, norm="layer"), with_edges(6, 2), 3),
    over_graph(
        "mpnn, a row a graph",
        lambda: models.MPNN(6, 8, 3, edge_features=3, readout="sum", update="mlp", shared=True),
        molecules,
        3,
        rows=2,
        equivariant=None,  # graphs are not relabelled
    ),
    over_graph(
        "graph transformer",
        lambda: models.GraphTransformer(6, 8, 3, layers=2, heads=2, edge_features=2),
        with_edges(6, 2),
        3,
    ),
    over_graph(
        "graph transformer, everyone",
        lambda: models.GraphTransformer(6, 8, 3, layers=2, heads=2, neighbors="everyone", readout="mean"),
        plain(6),
        3,
        rows=1,
        equivariant=None,  # one row a graph
    ),
    over_graph(
        "graph transformer, positions",
        lambda: models.GraphTransformer(6, 8, 3, layers=2, heads=2, positions=3),
        plain(6),
        3,
        equivariant=None,  # eigenvectors of equal eigenvalues may turn
        compiles=False,  # eigenvectors are worked out and kept outside; given as positions=, it would
    ),
]
