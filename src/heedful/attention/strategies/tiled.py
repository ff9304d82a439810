"""The defining formula a band of rows at a time, each band recomputed in the backward pass: O(N·tile) memory.

Takes any similarity, position and pattern, and looks only at the run of keys a band can hear, so windows and
packed segments cost what they should. On a GPU a tile is what a kernel holds (`by_tiles.py`).
"""

from __future__ import annotations

from math import inf

import torch

from ..cost import Cost
from ..neighbors import Tile
from ..transforms import recompute, slices
from .base import Strategy, attend_block, no_pairs
from .by_tiles import by_tiles, takes, tiles_backward_cost, tiles_cost
from .reference import block_passes, mask_launches, pair_flops, prepare_launches

# Elements: 4 MiB in float32, so that a tile's several passes stay in the last-level cache.
SCORES_AT_ONCE = 1 << 20


def tile_rows(rows: int, queries: int, keys: int, width: int) -> int:
    """How many listeners to take at a time when `rows` heads each hear `width` of the keys."""
    height = max(16, min(queries, SCORES_AT_ONCE // max(1, rows * width)))
    return (
        height if width >= keys else min(height, max(256, width))
    )  # a tall band hears keys no row of it wants


class Tiled(Strategy):
    name = "tiled"

    def accepts(self, problem):
        return no_pairs(problem)

    def flavor(self, problem):
        return "tiles" if takes(problem) else self.name

    def cost(self, problem):
        if takes(problem):
            return tiles_cost(problem)
        depth = problem.dim if problem.similarity.kind == "additive_v2" else 1
        height = tile_rows(problem.rows * depth, problem.queries, problem.keys, problem.width)
        spanned = min(problem.keys, problem.width + height) if problem.width < problem.keys else problem.keys
        pairs = problem.rows * problem.queries * spanned
        if problem.neighbors.interval == (0, inf):
            pairs *= 0.5  # the future is never looked at
        passes = block_passes(problem)
        tiles = -(-problem.queries // height)
        held = problem.item * problem.rows * height * spanned
        if depth > 1:
            held *= 1 + depth
            passes += 2 * depth
        return Cost(
            pairs * pair_flops(problem),
            pairs * problem.item * passes,
            3 * held,
            (10 + mask_launches(problem)) * tiles + prepare_launches(problem),
        )

    def backward_cost(self, problem):
        return tiles_backward_cost(problem) if takes(problem) else super().backward_cost(problem)

    def __call__(self, call):
        out = by_tiles(call)
        return super().__call__(call) if out is None else out

    def run(self, call):
        query, key = call.similarity.prepare(call.query, call.key)
        lead, table = query.shape[:-2], call.table()
        if lead.numel() * call.queries * call.keys <= SCORES_AT_ONCE:
            # One tile, and no arithmetic on lengths: torch.compile then keeps them symbolic.
            whole = Tile.whole(call.queries, call.keys, query.device)
            return self._band(call, query, key, call.value, whole, table)
        facts = call.facts
        width = min(call.keys, facts.reach[1] - facts.reach[0] + 1)
        depth = query.shape[-1] if call.similarity.kind == "additive_v2" else 1
        height = tile_rows(lead.numel() * depth, call.queries, call.keys, int(width))
        rows = [(start, min(start + height, call.queries)) for start in range(0, call.queries, height)]
        columns = [call.neighbors.key_range(span, call.queries, call.keys) for span in rows]
        parts = zip(slices(query, rows), slices(key, columns), slices(call.value, columns), strict=True)
        tiles = (
            Tile(call.queries, call.keys, *spans, query.device) for spans in zip(rows, columns, strict=True)
        )
        bands = [self._band(call, *part, tile, table) for part, tile in zip(parts, tiles, strict=True)]
        return torch.cat(bands, -2)

    def _band(self, call, query, key, value, tile, table):
        def band(q, k, v, *p):
            return attend_block(call, q, k, v, tile, p[0] if p else None)

        extra = () if table is None else (table,)
        return recompute(band, query, key, value, *extra, hidden=call.similarity.hidden, held=call.held())
