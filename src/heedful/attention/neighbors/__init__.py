"""Who listens to whom: patterns over positions, composable with & and |, and graphs.

Positions are those of the keys. When there are fewer queries than keys (or more) they align at the end: query
i stands at position i + keys − queries. That is what decoding with a cache needs.

A pattern says whether i heeds j (`allows`), can list its pairs (`pairs`), and declares facts: the interval of
i−j that it is made of, if it is that simple, how far it reaches, how many pairs there are.
"""

from .base import Neighbors, Tile
from .combined import All, Any, Pair
from .edges import Edges, as_neighbors
from .global_ import Global
from .interval import Causal, Everyone, Interval, Window
from .mask import Mask
from .segments import Segments

__all__ = [
    "All",
    "Any",
    "Causal",
    "Edges",
    "Everyone",
    "Global",
    "Interval",
    "Mask",
    "Neighbors",
    "Pair",
    "Segments",
    "Tile",
    "Window",
    "as_neighbors",
]
