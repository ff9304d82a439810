"""Patterns made of two, by & and |."""

from __future__ import annotations

from math import inf

import torch

from ..problem import NeighborFacts
from .base import Neighbors
from .edges import Edges
from .interval import interval_facts


class Pair(Neighbors):
    symbol: str

    def __init__(self, left: Neighbors, right: Neighbors):
        self.left, self.right = left, right
        self.signature = (type(self).__name__, left.signature, right.signature)
        for side in (left, right):
            if isinstance(side, Edges) and side.attributes and not self._keeps_edges:
                raise TypeError(
                    f"{left} | {right}: the pairs that are not edges would have no {side.attributes[0]}. "
                    f"Drop it with graph.with_edges({side.attributes[0]}=None), or use &."
                )

    _keeps_edges = False

    @property
    def shape_key(self):
        return (type(self).__name__, self.left.shape_key, self.right.shape_key)

    def check(self, queries, keys, heads):
        self.left.check(queries, keys, heads)
        self.right.check(queries, keys, heads)

    def carried(self):
        return self.left.carried() + self.right.carried()

    def graphs(self):
        return self.left.graphs() + self.right.graphs()

    def facts(self, queries, keys):
        left, right = self.left.facts(queries, keys), self.right.facts(queries, keys)
        name = self._named(left.name, right.name)
        interval = self._interval(left.interval, right.interval)
        if interval is not None:
            return interval_facts(name, *interval, queries, keys)
        return self._facts(name, left, right, float(queries) * keys)

    def __repr__(self):
        return self._named(repr(self.left), repr(self.right))

    def _named(self, left: str, right: str) -> str:
        # & binds tighter than |, so only an | inside an & needs parentheses.
        if isinstance(self, All):
            left = f"({left})" if isinstance(self.left, Any) else left
            right = f"({right})" if isinstance(self.right, Any) else right
        return f"{left} {self.symbol} {right}"


class All(Pair):
    """Both patterns allow it."""

    symbol = "&"
    _keeps_edges = True

    def allows(self, i, j, queries, keys):
        return self.left.allows(i, j, queries, keys) & self.right.allows(i, j, queries, keys)

    def mask(self, tile):
        masks = [mask for mask in (self.left.mask(tile), self.right.mask(tile)) if mask is not None]
        return masks[0] if len(masks) == 1 else masks[0] & masks[1] if masks else None

    def _interval(self, left, right):
        if left is None or right is None:
            return None
        low, high = max(left[0], right[0]), min(left[1], right[1])
        return (low, high) if low <= high else (0, -1)

    def _facts(self, name, left, right, everything):
        low, high = max(left.reach[0], right.reach[0]), min(left.reach[1], right.reach[1])
        return NeighborFacts(
            name,
            min(left.pairs, right.pairs),
            interval=None,
            reach=(low, high),
            block=min(left.block, right.block),
            complete=left.complete and right.complete,
            graph=left.graph or right.graph,
            attributes=left.attributes or right.attributes,
            repeated=left.repeated or right.repeated,
            listed=left.listed and right.listed,
            lasting=left.lasting and right.lasting,
        )

    def span(self, queries, keys):
        left, right = self.left.span(queries, keys), self.right.span(queries, keys)
        return min(left[0], right[0]), min(left[1], right[1])

    def key_range(self, rows, queries, keys):
        left, right = (side.key_range(rows, queries, keys) for side in (self.left, self.right))
        start, stop = max(left[0], right[0]), min(left[1], right[1])
        return (start, stop) if start < stop else (0, 0)

    def pairs(self, queries, keys, device):
        sides = sorted((self.left, self.right), key=lambda side: side.facts(queries, keys).pairs)
        i, j = sides[0].pairs(queries, keys, device)
        kept = sides[1].allows(i, j, queries, keys)
        return i[kept], j[kept]

    def list_edges(self, queries, keys, device):
        graphs = [side for side in (self.left, self.right) if side.facts(queries, keys).graph]
        if not graphs:
            return super().list_edges(queries, keys, device)
        if len(graphs) == 2 and all(side.facts(queries, keys).attributes for side in graphs):
            raise ValueError(
                f"{self}: both graphs carry edge attributes, and it is not clear whose should hold."
            )
        # Filter edges rather than list pairs, so that attributes and repeated edges survive.
        base = graphs[-1] if graphs[-1].facts(queries, keys).attributes else graphs[0]
        other = self.right if base is self.left else self.left
        graph = base.graph(queries, keys, device)
        kept = other.allows(graph.target + (keys - queries), graph.source, queries, keys)
        if kept.dim() == 1 and not torch.compiler.is_compiling():
            return graph.filter(kept)
        # A mask of its own for each head or batch entry silences the edges there that it forbids, and so does
        # any pattern where a compiler is to know how many there are.
        silence = torch.zeros(kept.shape, device=kept.device).masked_fill(~kept, -inf)
        return graph.with_edges(bias=silence if graph.bias is None else graph.bias + silence)


class Any(Pair):
    """Either pattern allows it."""

    symbol = "|"

    def allows(self, i, j, queries, keys):
        return self.left.allows(i, j, queries, keys) | self.right.allows(i, j, queries, keys)

    def mask(self, tile):
        masks = (self.left.mask(tile), self.right.mask(tile))
        return None if masks[0] is None or masks[1] is None else masks[0] | masks[1]

    def _interval(self, left, right):
        if left is None or right is None:
            return None
        (low, high), (second_low, second_high) = sorted([left, right])
        if second_low > high + 1:
            return None
        return (low, max(high, second_high))

    def _facts(self, name, left, right, everything):
        low, high = min(left.reach[0], right.reach[0]), max(left.reach[1], right.reach[1])
        return NeighborFacts(
            name,
            min(left.pairs + right.pairs, everything),
            interval=None,
            reach=(low, high),
            complete=left.complete or right.complete,
            listed=left.listed and right.listed,
            lasting=left.lasting and right.lasting,
        )

    def span(self, queries, keys):
        left, right = self.left.span(queries, keys), self.right.span(queries, keys)
        return max(left[0], right[0]), max(left[1], right[1])

    def key_range(self, rows, queries, keys):
        left, right = (side.key_range(rows, queries, keys) for side in (self.left, self.right))
        ranges = [side for side in (left, right) if side[0] < side[1]] or [(0, 0)]
        return (min(side[0] for side in ranges), max(side[1] for side in ranges))

    def pairs(self, queries, keys, device):
        codes = [
            i * keys + j for i, j in (side.pairs(queries, keys, device) for side in (self.left, self.right))
        ]
        code = torch.cat(codes).unique()
        return torch.div(code, keys, rounding_mode="floor"), code % keys
