"""Graphs: who listens to whom, what is carried along the edges, and sums over neighbours.

>>> from heedful.graphs import Graph
>>> Graph.from_edges([0, 1], [1, 2], nodes=3)
Graph(3 nodes, 2 edges)
"""

from .graph import Graph
from .sample import Sample

__all__ = ["Graph", "Sample"]
