"""Additive attention over everyone in O(N log N).

exp(leaky(q + k)) is exp(q)·exp(k) for k > −q and exp(s q)·exp(s k) otherwise (s the slope). Sort the keys:
what a listener hears is a suffix sum of exp(k) v and a prefix sum of exp(s k) v, split at −q, found by
bisection.

Both sums are kept relative to the largest key K. Where q + K > 0 the strongest weight is exp(q + K), and
relative to it the prefix part carries exp((s−1)(q + K)) ≤ 1; where q + K ≤ 0 everyone is on the prefix side
and q cancels. So nothing overflows, and what underflows would have been lost in rounding. Sums are in
float64: prefix sums of many terms lose digits in float32.
"""

from __future__ import annotations

import math

import torch

from ..cost import TRANSCENDENTAL, Cost
from ..transforms import backwards
from .base import Strategy, divide_ones, with_ones


class Sorted(Strategy):
    name = "sorted"

    def accepts(self, problem):
        if problem.similarity.kind != "additive":
            return f"{problem.similarity.name} does not split into a function of query times one of key"
        if problem.dropout:
            return "dropout needs the weight of each pair"
        if problem.position is not None:
            return f"{problem.position.name} ties the weight to the distance"
        if not problem.neighbors.complete:
            return f"{problem.neighbors.name} leaves someone out"
        return None

    def cost(self, problem):
        width = problem.value_dim + 1
        length = problem.rows * (problem.keys + problem.queries)
        sorting = problem.rows * (problem.keys + problem.queries) * math.log2(max(2, problem.keys))
        return Cost(
            sorting * 4 + length * (8 * width + 2 * TRANSCENDENTAL),
            8 * (8 * length * width + sorting),
            8 * 4 * length * width,
            30,
        )

    def run(self, call):
        query, key, value = (x.double() for x in (call.query, call.key, call.value))
        slope = call.similarity.slope
        key, order = key.squeeze(-1).sort(-1)  # (..., M) ascending
        value = _take_rows(with_ones(value), order)
        top = key[..., -1:].detach()
        # prefix[t] sums the t smallest keys, suffix[t] all but the t smallest; t = M is everyone and no one.
        prefix = _running(torch.exp(slope * (key - top))[..., None] * value)
        suffix = backwards(_running(backwards(torch.exp(key - top)[..., None] * value, -2)), -2)
        query = query.squeeze(-1)
        split = torch.searchsorted(key.detach().contiguous(), -query.detach().contiguous(), right=True)
        reach = query + top
        damp = torch.exp((slope - 1) * reach.clamp_min(0))[..., None]
        heard = _take_rows(suffix, split) + damp * _take_rows(prefix, split)
        return divide_ones(heard)


def _running(terms):
    """Sums over the first 0, 1, …, M rows."""
    return torch.cat([torch.zeros_like(terms[..., :1, :]), terms.cumsum(-2)], -2)


def _take_rows(x, index):
    """x[..., index, :] for an index (..., K) of each leading entry's own; whole rows move, unlike gather."""
    lead = index.shape[:-1]
    first = torch.arange(lead.numel(), device=x.device).view(*lead, 1) * x.shape[-2]
    rows = x.reshape(-1, x.shape[-1]).index_select(0, (index + first).flatten())
    return rows.view(*index.shape, x.shape[-1])
