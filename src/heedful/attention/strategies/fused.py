"""torch's scaled_dot_product_attention: softmax over everyone, causal, or any pattern as a mask."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import torch
from torch import Tensor
from torch.nn import functional as F

from ..cost import TRANSCENDENTAL, Cost, traffic
from ..neighbors import Tile
from ..position import toeplitz_block
from .base import Call, Strategy, no_pairs
from .cache import CacheState, append
from .reference import pair_flops
from .sdpa import added, sdpa

LEAST = 64  # features that torch's kernels on a GPU take as long for as for fewer


class Fused(Strategy):
    name = "fused"
    groups = True
    narrow = True

    def accepts(self, problem):
        if problem.similarity.kind != "dot":
            return f"{problem.similarity.name} is not an exponential of a dot product"
        return no_pairs(problem)

    def flavor(self, problem):
        if problem.dropout:
            return "fused with dropout"
        return "fused with a mask" if needs_mask(problem) else self.name

    def cost(self, problem):
        pairs = problem.rows * problem.queries * problem.keys
        if problem.dropout:
            masked = problem.position is not None or not problem.neighbors.complete
            size, passes = problem.item * pairs, 4 + masked
            return Cost(pairs * pair_flops(problem), traffic(size, passes), 3 * size, 12)
        masked = needs_mask(problem)
        pairs *= 1 if masked or problem.neighbors.complete else 0.5
        mask = _mask_size(problem) if masked else 0
        # Made once for all heads or for each, then read for every pair; offsets are int64. By the times
        # measured, half of it stays in the caches.
        made = 3 + 2 * (problem.position is not None and not problem.neighbors.complete)
        offsets = 28 * problem.queries * problem.keys * (not problem.neighbors.complete)
        moved = 0.5 * (traffic(mask * problem.item, made) + offsets + pairs * problem.item) if masked else 0
        # A mask that wants a gradient makes torch write out all scores.
        written = 4 * pairs * problem.item if problem.position and problem.position.learned else 0
        least = LEAST if problem.device == "cuda" else 0
        dims = max(problem.dim, least) + max(problem.value_dim, least)
        return Cost(
            pairs * (2 * dims + TRANSCENDENTAL),
            problem.tensor_bytes + moved + traffic(written / 4, 4),
            mask * (1 + problem.item) + written,
            1 + (_mask_launches(problem) if masked else 0),
        )

    def backward_cost(self, problem):
        forward = self.cost(problem)
        if problem.dropout:
            return forward.times(2)
        # The mask is read again, not made again.
        return Cost(2.5 * forward.flops, forward.bytes + problem.tensor_bytes, forward.memory, 3)

    def run(self, call):
        if call.dropout:
            return _with_dropout(call)
        query, key, value, scale = scaled(call)
        facts = call.facts
        causal = call.position is None and plainly_causal(facts, call.queries, call.keys)
        mask = None if causal or (facts.complete and call.position is None) else _mask(call)
        lead, width = query.shape[:-3], value.shape[-1]
        if len(lead) != 1:  # torch's fast paths take exactly one batch dimension
            query, key, value = (x.reshape(-1, *x.shape[-3:]) for x in (query, key, value))
            if mask is not None and mask.dim() > 3:
                mask = mask.expand(*lead, *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])
        if width != query.shape[-1]:  # … and equal widths; zeros change no scores and no column that is kept
            wide = max(width, query.shape[-1])
            query, key, value = (
                x if x.shape[-1] == wide else F.pad(x, (0, wide - x.shape[-1])) for x in (query, key, value)
            )
        if (
            mask is not None and mask.dim() == 3
        ):  # torch's fast paths take two or four; with three it writes all scores
            mask = mask[None]
        silent = None
        if mask is not None and query.device.type == "cuda" and not _everyone_hears(call):
            # Those who hear nobody get the mean, or NaN, from some of torch's kernels there: they may listen
            # to everyone, and are silenced afterwards.
            nobody = ~mask if mask.dtype == torch.bool else mask == -torch.inf
            silent = nobody.all(-1, keepdim=True)
            mask = mask | silent if mask.dtype == torch.bool else mask.masked_fill(silent, 0)
        out = sdpa(query, key, value, mask, causal, scale)
        if width != out.shape[-1]:
            out = out[..., :width]
        if silent is not None:
            out = out.masked_fill(silent, 0)
        return out if len(lead) == 1 else out.reshape(*lead, *out.shape[1:])

    def step(self, call: Call, state: CacheState | None) -> tuple[Tensor, CacheState]:
        """Hear the new tokens of `call` and all in `state`: keys and values; softmax has no smaller one."""
        state = append(state, call.key, call.value)
        key, value = state.heard
        return self.run(replace(call, key=key, value=value, facts=None)), state


def _with_dropout(call: Call) -> Tensor:
    """softmax(β q·k + mask), some weights dropped, times v. What torch drops, nobody could drop again."""
    dtype, repeats = call.query.dtype, call.heads // call.key.shape[-3]
    wide = torch.promote_types(dtype, torch.float32)
    query, key = call.similarity.prepare(call.query.to(wide), call.key.to(wide))
    value = call.value.to(wide)
    if repeats > 1:
        key, value = (x.repeat_interleave(repeats, -3) for x in (key, value))
    scores, mask, silent = query @ key.mT, added(_mask(call), query), None
    if mask is not None:
        silent = (mask == -torch.inf).all(-1, keepdim=True)  # they hear nobody: 0 in the end, no NaN before
        scores = scores + mask.masked_fill(silent, 0)
    weights = torch.softmax(scores, -1)
    if silent is not None and not _everyone_hears(call):
        weights = weights.masked_fill(silent, 0)
    tile = Tile.whole(call.queries, call.keys, query.device)
    return (call.drop_tile(weights, tile) @ value).to(dtype)


def _everyone_hears(call: Call) -> bool:
    """Whether, by the pattern alone, each listener hears itself."""
    low, high = call.facts.interval or (1, 0)  # type: ignore[union-attr]
    return call.position is None and low <= 0 <= high and call.queries <= call.keys


def plainly_causal(facts, queries: int, keys: int) -> bool:
    if queries != keys:  # a branch, so that symbolic lengths give a plain bool, which torch insists on
        return False
    low, high = facts.interval or (1, 0)
    return low == 0 and high == inf


def needs_mask(problem) -> bool:
    """Whether torch's kernel must be given a mask: it knows everyone and the whole past without."""
    plain = problem.neighbors.complete or plainly_causal(problem.neighbors, problem.queries, problem.keys)
    return not plain or problem.position is not None


def _mask_launches(problem) -> int:
    """Operations that make a mask, counted: for offsets, for what is more than offsets, for a position."""
    pattern = 0 if problem.neighbors.complete else 10 if problem.neighbors.interval else 21
    position = 10 if problem.position is not None else 0
    # Some might hear nobody: on a GPU they are looked for, and silenced.
    some = problem.device == "cuda" and (position or problem.neighbors.interval is None)
    return pattern + position + (4 if some else 0)


def _mask_size(problem) -> int:
    own = problem.position is not None and problem.position.per_head
    return problem.queries * problem.keys * (problem.heads if own else 1)


def scaled(call: Call):
    """A tensor scale is multiplied into the query, since torch takes numbers only."""
    scale = call.similarity.resolved(call.query.shape[-1])
    if isinstance(scale, Tensor):
        query, key = call.similarity.prepare(call.query, call.key)
        return query.to(call.query.dtype), key, call.value, 1.0
    return call.query, call.key, call.value, scale


def _mask(call: Call) -> Tensor | None:
    """The pattern and position as one mask: boolean, or added to the scores, (heads or 1, N, M)."""
    tile = Tile.whole(call.queries, call.keys, call.query.device)
    allowed, table = call.neighbors.mask(tile), call.table()
    if table is None:
        return allowed
    bias = toeplitz_block(table, tile.rows, tile.columns, call.keys)
    return bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
