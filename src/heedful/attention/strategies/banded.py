"""Windows by blocks: a block of queries meets only the keys within its reach, all in one batched product.

O(N·w) time and memory for any pattern that reaches no farther than w, whatever the similarity and position.
On a GPU the kernel of tiles does just that, and runs (`by_tiles.py`).
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ..cost import Cost
from ..transforms import recompute, slices
from .base import Strategy, divide, no_pairs
from .by_tiles import by_tiles, takes, tiles_backward_cost, tiles_cost
from .reference import pair_flops, prepare_launches
from .tiled import SCORES_AT_ONCE


def block_length(left: int, right: int) -> int:
    """Queries a block: enough for efficient products, few enough not to waste the band's corners."""
    return min(64, max(16, (left + right + 1) // 2))


class Banded(Strategy):
    name = "banded"

    def accepts(self, problem):
        reason = no_pairs(problem)
        if reason or problem.neighbors.graph:
            return reason or "an edge list"
        if not problem.neighbors.listed:
            return "a mask of its own for each batch entry"
        if sum(problem.band) + 1 >= problem.keys:
            return f"{problem.neighbors.name} reaches across all {problem.keys:,} keys"
        return None

    def flavor(self, problem):
        return "tiles" if takes(problem) else self.name

    def cost(self, problem):
        if takes(problem):
            return tiles_cost(problem)
        left, right = problem.band
        block = block_length(left, right)
        pairs = problem.rows * -(-problem.queries // block) * block * (block + left + right)
        passes = 7 + 2 * (problem.position is not None)
        groups = -(-pairs // SCORES_AT_ONCE)
        copied = (
            2
            * problem.rows
            * problem.queries
            * (problem.dim + problem.value_dim)
            * (block + left + right)
            / block
        )
        wide = 1 + problem.dim if problem.similarity.kind == "additive_v2" else 1
        return Cost(
            pairs * pair_flops(problem),
            problem.item * (pairs * (passes + 2 * (wide - 1)) + copied),
            3 * problem.item * wide * min(pairs, SCORES_AT_ONCE),
            24 * groups + 10 + prepare_launches(problem),
        )

    def backward_cost(self, problem):
        return tiles_backward_cost(problem) if takes(problem) else super().backward_cost(problem)

    def __call__(self, call):
        out = by_tiles(call)
        return super().__call__(call) if out is None else out

    def run(self, call):
        query, key = call.similarity.prepare(call.query, call.key)
        low, high = call.facts.reach
        left, right = int(min(high, call.keys - 1)), int(min(-low, call.queries - 1))
        block = block_length(left, right)
        bias = self._bias(call, block, left, right)
        rows = query.shape[:-2].numel()
        blocks = max(1, SCORES_AT_ONCE // max(1, rows * block * (block + left + right)))
        whole = call.queries <= blocks * block  # then lengths stay symbolic under torch.compile
        starts = (0,) if whole else range(0, call.queries, blocks * block)
        spans = [
            (start, call.queries if whole else min(start + blocks * block, call.queries)) for start in starts
        ]
        columns = [self._columns(call, span, block, left, right) for span in spans]
        inputs = zip(slices(query, spans), slices(key, columns), slices(call.value, columns), strict=True)
        parts = [
            self._group(call, *tensors, bias, span, heard, block, left, right)
            for tensors, span, heard in zip(inputs, spans, columns, strict=True)
        ]
        return torch.cat(parts, -2)

    def _columns(self, call, span, block, left, right):
        """The keys within reach of the blocks that cover these rows."""
        first = span[0] + call.keys - call.queries - left
        last = first + -(-(span[1] - span[0]) // block) * block + left + right
        return max(0, min(first, call.keys)), max(0, min(last, call.keys))

    def _bias(self, call, block, left, right):
        """p_{i−j} inside a block, (heads or 1, block, block + left + right): it does not depend on which."""
        table = call.table()
        if table is None:
            return None
        r = torch.arange(block, device=table.device)[:, None]
        s = torch.arange(block + left + right, device=table.device)[None, :]
        entry = (call.queries - 1 + r + left - s).clamp(0, table.shape[-1] - 1)
        return table.index_select(-1, entry.flatten()).view(table.shape[0], *entry.shape)

    def _group(self, call, query, key, value, bias, span, columns, block, left, right):
        """Rows `span`, which is a whole number of blocks but for the last."""
        start, stop = span
        count = -(-(stop - start) // block)
        first = start + call.keys - call.queries - left  # position of the first key the group can hear
        width = block + left + right
        before, after = columns[0] - first, first + count * block + left + right - columns[1]

        def group(q, k, v, *p):
            # Blocks go before heads, so that whatever has one entry a head broadcasts as everywhere else.
            q = (
                F.pad(q, (0, 0, 0, count * block - (stop - start)))
                .unflatten(-2, (count, block))
                .transpose(-4, -3)
            )
            k, v = (
                F.pad(x, (0, 0, before, after)).unfold(-2, width, block).mT.transpose(-4, -3) for x in (k, v)
            )
            first_keys = first + block * torch.arange(count, device=q.device)
            j = (first_keys[:, None] + torch.arange(width, device=q.device))[:, None, None, :]
            i = first_keys[:, None, None, None] + left + torch.arange(block, device=q.device)[:, None]
            allowed = self._allowed(call, i, j, padded=before > 0 or after > 0)
            weights = call.similarity.weigh(call.similarity.scores(q, k), p[0] if p else None, allowed)
            normalizer = weights.sum(-1, keepdim=True)  # (..., blocks, H, block, 1)
            if call.dropout:
                i, j = i.squeeze(1) - (call.keys - call.queries), j.squeeze(1).clamp(0, call.keys - 1)
                weights = call.drop(weights.transpose(-4, -3), i, j).transpose(-4, -3)
            out = divide(weights @ v, normalizer).transpose(-4, -3).flatten(-3, -2)
            return out[..., : stop - start, :]

        extra = () if bias is None else (bias,)
        return recompute(group, query, key, value, *extra, hidden=call.similarity.hidden, held=call.held())

    def _allowed(self, call, i, j, padded):
        """Who hears whom in each block, for i (blocks, 1, block, 1) and j (blocks, 1, 1, width)."""
        inside = j.clamp(0, call.keys - 1)
        if call.facts.interval is None:
            allowed = call.neighbors.allows(i.clamp_max(call.keys - 1), inside, call.queries, call.keys)
            return allowed & (j == inside)
        low, high = call.facts.interval
        offset = i[:1] - j[:1]  # the same in every block
        allowed = (offset >= low) & (offset <= high)
        return allowed & (j == inside) if padded else allowed
