"""Layers over graphs: `layer(x, graph)`, where edge j→i of the `Graph` means that i listens to j."""

from __future__ import annotations

from .conv import GraphConv
from .features import Dropout, dropout, product
from .gat import GATConv
from .gatv2 import GATv2Conv
from .gcn import GCNConv
from .message_passing import Jointly, MessagePassing
from .positions import laplacian_positions
from .readout import readout
from .transformer import GraphTransformerConv

__all__ = [
    "Dropout",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GraphConv",
    "GraphTransformerConv",
    "Jointly",
    "MessagePassing",
    "dropout",
    "laplacian_positions",
    "product",
    "readout",
]
