"""Any pairs by tiles on the GPU, one kernel a pass: what `tiled` and `banded` run there.

A tile's weights are made in registers, used and dropped, so memory is O(N·d) in training, too, and a window
of w costs N·w. Patterns that are no interval of i−j are looked at once, tile by tile (`listing_of`).
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from ...kernels import tile_operators, tiles
from ...kernels.lengths import shortened
from ...kernels.tiles import Listing, Pairs, tile_attention
from ..cost import Cost
from ..neighbors import Neighbors
from ..similarity import Additive, Polynomial
from ..transforms import exporting, lasting
from .base import Call
from .fused import scaled
from .squares import AT_ONCE, squares

KINDS = ("dot", "power", "additive", "uniform", "features")
# Of a pair, besides its products, in multiplications of float32: to see whether it counts, and weigh it; to
# bring scores that no product made to where the next one wants them; to find its entry in a table.
PAIR, REARRANGED, LOOKUP = 50, 60, 240
TENSOR_CORES = 4  # how much faster products of half precision are
LISTING = 37, 20  # launches, and bytes a pair, to list what a mask allows, which is done at every call
PROGRAMS = 264  # that run side by side on a large GPU: none is done before those that hear most


def takes(problem) -> bool:
    """Whether the kernels will run a problem, for the planner."""
    similarity, pattern = problem.similarity, problem.neighbors
    if problem.device != "cuda" or problem.transform == "functorch" or similarity.kind not in KINDS:
        return False
    if problem.transform == "compile" and pattern.interval is None:
        return False
    width = similarity.features if similarity.kind == "features" else problem.dim
    wide = similarity.kind != "uniform" and width > tiles.WIDEST
    plain = pattern.interval is not None or (pattern.listed and not pattern.graph)
    return plain and not wide and problem.value_dim <= tiles.WIDEST and problem.dtype != "float64"


def tiles_cost(problem) -> Cost:
    """One pass, with a product for scores and one for values."""
    once = _pass(problem)
    if problem.neighbors.lasting:
        return once
    launches, each = LISTING
    pairs = problem.queries * problem.keys
    return once + Cost(0, each * pairs, 9 * min(pairs, AT_ONCE), launches)


def _pass(problem) -> Cost:
    launches = {"power": 16, "features": 8}.get(problem.similarity.kind, 4)
    launches += 8 * (problem.position is not None)
    numbers = 8 * problem.rows * problem.queries
    return Cost(_arithmetic(problem, 1, 1, 1), problem.tensor_bytes, numbers + problem.tensor_bytes, launches)


def tiles_backward_cost(problem) -> Cost:
    """Weights are made once for listeners, once for speakers, and once more for a table that learns."""
    forward = _pass(problem)
    flops = _arithmetic(problem, 2, 4, 3) if problem.similarity.kind != "uniform" else forward.flops
    memory = 2 * forward.memory
    if problem.position is not None and problem.position.learned:
        flops += forward.flops
        # A square a diagonal of tiles, summed over the batch, its rows then moved apart.
        tables = problem.heads if problem.position.per_head else 1
        memory += 4 * tiles.GRAIN * (problem.queries + problem.keys) * (problem.rows + 3 * tables)
    return Cost(flops, 2 * forward.bytes, memory, forward.launches + 6)


def _arithmetic(problem, passes: int, of_keys: int, of_values: int) -> float:
    """All pairs of the tiles that are looked at; those at an edge of the pattern are partly empty."""
    pattern, kind = problem.neighbors, problem.similarity.kind
    edges = 0 if pattern.complete else 1 if pattern.interval is not None else 2
    heard = min(pattern.pairs + edges * tiles.GRAIN * problem.queries, problem.queries * problem.keys)
    pairs = max(problem.rows * heard, PROGRAMS * tiles.GRAIN * problem.width)
    width = problem.similarity.features if kind == "features" else problem.dim
    compared = kind in ("dot", "power", "features")
    products = 2 * of_values * max(problem.value_dim, 16) + 2 * of_keys * max(width, 16) * compared
    if problem.item == 2 and kind != "features":  # which are made in float32
        products /= TENSOR_CORES
    each = PAIR + 30 * problem.dropout + (0 if compared else REARRANGED)
    each += LOOKUP * (problem.position is not None)
    return pairs * (products + passes * each)


def by_tiles(call: Call) -> Tensor | None:
    """The result, or None where the kernels do not take the call."""
    query, key, value, similarity = call.query, call.key, call.value, call.similarity
    if exporting() or similarity.kind not in KINDS or not tiles.suits(query, key, value):
        return None  # an exported program must run where our operators are not known
    compiling, facts = torch.compiler.is_compiling(), call.facts
    assert facts is not None, "a call knows its neighbours"
    if facts.interval is None and (compiling or facts.graph or not facts.listed):
        return None
    table = _table(call)
    if key.shape[-3] != query.shape[-3]:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(repeats, -3) for x in (key, value))
    query, key, value, constants, pairs = _prepared(call, query, key, value)
    if query.shape[-1] > tiles.WIDEST and pairs.kind != "uniform":
        return None
    low, high = facts.interval or (-tiles.FAR, tiles.FAR)
    pairs = pairs._replace(
        low=int(max(low, -tiles.FAR)),
        high=int(min(high, tiles.FAR)),
        listing=None if facts.interval is not None else listing_of(call.neighbors, call),
        dropout=call.dropout,
        heads=call.heads,
    )
    lead = query.shape[:-2]
    q, k, v = (x.flatten(0, -3) for x in (query, key, value))
    constants = None if constants is None else constants.flatten(0, -2)
    if compiling:
        learns = any(x.requires_grad for x in (q, k, v, table) if x is not None)
        out = tile_operators.tile_attention(
            q, k, v, constants, table, call.seed, *pairs[:6], pairs.dropout, pairs.heads,
            torch.is_grad_enabled() and learns,
        )[0].to(q.dtype)  # fmt: skip
    else:
        out = tile_attention(q, k, v, pairs, constants=constants, table=table, seed=call.seed)
    return out.unflatten(0, lead).to(call.query.dtype)


def _table(call: Call) -> Tensor | None:
    """Wide, whatever the queries are: a distance times a slope has more digits than half precision."""
    if call.position is None:
        return None
    wide = call.query.new_empty(0, dtype=torch.float32)
    return call.position.table(call.queries, call.keys, call.heads, wide)


def _prepared(call: Call, query: Tensor, key: Tensor, value: Tensor):
    """(query, key, value, constants, how they weigh)"""
    similarity = call.similarity
    if similarity.kind == "dot":
        query, key, _, scale = scaled(Call(query, key, value, similarity, call.neighbors, facts=call.facts))
        return query, key, value, None, Pairs("dot", scale=scale)
    if isinstance(similarity, Polynomial):
        if query.dtype == torch.float16:  # weights, and what they are divided by, are of any size
            query, key, value = (x.float() for x in (query, key, value))
        query, key, constants = shortened(query, key, similarity.constant, similarity.degree)
        return query, key, value, constants, Pairs("power", similarity.degree)
    if isinstance(similarity, Additive):
        return query, key, value, None, Pairs("additive", slope=similarity.slope)
    if similarity.kind == "uniform":
        return query.detach(), key.detach(), value, None, Pairs("uniform")
    query, key = query.float(), key.float()
    similarity = similarity.fitted(key)
    query, key = similarity.prepare(query, key)
    query, key = similarity.query_features(query), similarity.key_features(key)
    return query, key, value.float(), None, Pairs("power")


def listing_of(neighbors: Neighbors, call: Call) -> Listing:
    """Kept with the pattern, for it takes longer than many a call, unless its tensors may change."""
    found = _listing if not neighbors.carried() else _listing.__wrapped__
    return found(neighbors, call.queries, call.keys, call.query.device)


@lru_cache(16)
def _listing(neighbors: Neighbors, queries: int, keys: int, device: torch.device) -> Listing:
    grain, found = tiles.GRAIN, []
    with lasting():
        powers = 1 << torch.arange(grain, device=device)
        for top, left, cut in squares(neighbors, queries, keys, grain, device):
            down, across = cut.flatten(2).any(-1).nonzero(as_tuple=True)
            words = (cut[down, across] * powers).sum(-1)  # (tiles, grain)
            found.append((down + top, across + left, words))
        nobody = [torch.zeros(0, dtype=torch.int64, device=device)] * 2
        nobody.append(torch.zeros(1, grain, dtype=torch.int64, device=device))
        down, across, bits = map(torch.cat, zip(nobody, *found, strict=True))
        sizes = -(-queries // grain), -(-keys // grain)
        which = torch.arange(1, len(bits), device=device)  # tile 0 holds no pair
        order = torch.argsort(across, stable=True)
        return Listing(
            _compressed(down, across, which, sizes[0]),
            _compressed(across[order], down[order], which[order], sizes[1]),
            bits,
        )


def _compressed(place: Tensor, others: Tensor, which: Tensor, places: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where each place's tiles begin in what follows; what lies across from it; which tiles."""
    starts = torch.searchsorted(place, torch.arange(places + 1, device=place.device))
    return starts.int(), others.int(), which.int()
