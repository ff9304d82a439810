"""out_i = Σ_j sim(q_i, k_j; i−j) v_j / Σ_j sim(q_i, k_j; i−j), literally: all pairs, or edges, one by one.

Any dtype, differentiable any number of times, in any mode. It is the judge of every other strategy.
"""

from __future__ import annotations

import math

import torch

from ..cost import TRANSCENDENTAL, Cost, traffic
from ..neighbors import Tile
from .base import Strategy, attend_block, divide


class Reference(Strategy):
    name = "reference"

    def accepts(self, problem):
        return None

    def gives_way(self, problem):
        if problem.neighbors.graph and problem.device == "cuda":
            why = "it adds up edges in whatever order they come, so its last digits differ from run to run"
            return "sparse", why
        return None

    def flavor(self, problem):
        return "reference over edges" if problem.neighbors.graph else self.name

    def cost(self, problem):
        if problem.neighbors.graph:
            edges = problem.rows * problem.neighbors.pairs
            size = problem.item * edges * (2 * problem.dim + 3 * problem.value_dim + 8)
            return Cost(
                edges * pair_flops(problem), traffic(size, 4), size, 40
            )  # gathering and adding by index is slow
        pairs = problem.rows * problem.queries * problem.keys
        size = problem.item * pairs
        passes = block_passes(problem)
        held = 3 if problem.similarity.kind != "additive_v2" else 3 + 2 * problem.dim
        return Cost(
            pairs * pair_flops(problem),
            traffic(size, passes),
            size * held,
            12 + mask_launches(problem) + prepare_launches(problem),
        )

    def run(self, call):
        if call.facts.graph:
            return over_edges(call)
        query, key = call.similarity.prepare(call.query, call.key)
        tile = Tile.whole(call.queries, call.keys, query.device)
        return attend_block(call, query, key, call.value, tile, call.table())


def prepare_launches(problem) -> int:
    """Small operations that make query and key ready, whatever the lengths."""
    fitted = 10 * (problem.similarity.map == "exponential")  # told of all keys first
    return fitted + {"power": 22, "dot": 1, "features": 2}.get(problem.similarity.kind, 0)


def mask_launches(problem) -> int:
    """Small operations that lay a pattern and a position over a block of scores."""
    return 6 * (not problem.neighbors.complete) + 6 * (problem.position is not None)


def block_passes(problem) -> float:
    """Numbers read and written for each pair by `attend_block`, operation by operation.

    A mask is made from int64 offsets, once for all heads; a bias is copied out of its table, once or a head.
    """
    similarity = problem.similarity
    # Product, maximum, difference, exponential, sum, product; kernels have no exponential.
    passes = 8.0 if similarity.log_form else 3.0
    passes += 2.0 * (similarity.kind in ("power", "additive"))
    masked = not problem.neighbors.complete
    if masked:
        passes += 2 + 28 / (problem.item * problem.rows)
    if problem.position is not None:
        share = 1 / (problem.batch if problem.position.per_head else problem.rows)
        passes += 3 + share * (3 if similarity.log_form else 8 + 2 * masked)
    return passes


def pair_flops(problem) -> float:
    """Arithmetic of one pair: its score, its weight, its share of the output."""
    kind, dim = problem.similarity.kind, problem.dim
    score = {"uniform": 0, "additive": 3, "additive_v2": 4 * dim}.get(kind, 2 * dim)
    if kind == "features":
        score = 2 * (problem.similarity.features or dim)
    weight = TRANSCENDENTAL if problem.similarity.log_form else 2 * max(1, problem.similarity.degree)
    if problem.position is not None and not problem.similarity.log_form:
        weight += TRANSCENDENTAL  # exp of the bias
    return score + weight + 2 * problem.value_dim + (30 if problem.dropout else 0)


def over_edges(call):
    """The formula over an edge list, the terms of each edge gathered: (..., H, E, ·)."""
    graph = call.neighbors.graph(call.queries, call.keys, call.query.device)
    source, target = graph.source, graph.target
    query, key, value = (
        x.index_select(-2, nodes)
        for x, nodes in ((call.query, target), (call.key, source), (call.value, source))
    )
    similarity = call.similarity
    if graph.key is not None:
        key = key + graph.key
        similarity = similarity.fitted(key)
    if graph.value is not None:
        value = value + graph.value
    scores = similarity.pairs(*similarity.prepare(query, key))  # (..., H, E)
    weights = _weigh(similarity, scores, edge_bias(call, graph), target, call.queries)
    if graph.weight is not None:
        weights = weights * graph.weight
    normalizer = weights.new_zeros(weights.shape[:-1] + (call.queries,)).index_add(-1, target, weights)
    if call.dropout:
        edge = torch.arange(graph.edges, device=weights.device)
        weights = call.drop(weights, torch.zeros_like(edge), edge)
    terms = weights[..., None] * value
    total = terms.new_zeros(terms.shape[:-2] + (call.queries, terms.shape[-1])).index_add(-2, target, terms)
    return divide(total, normalizer[..., None])


def edge_bias(call, graph):
    """Added to each edge's log-score: the graph's own bias and the position of its ends, (..., E) or None."""
    bias, table = graph.bias, call.table()
    if table is None:
        return bias
    offset = graph.target + (call.keys - call.queries) - graph.source
    position = table.index_select(-1, offset + call.queries - 1)
    return position if bias is None else bias + position


def _weigh(similarity, scores, bias, target, queries):
    """`Similarity.weigh` where the rows are the edges that share a target."""
    if similarity.kind == "argmax":
        scores = scores.detach()
        heard = (
            torch.ones_like(scores, dtype=torch.bool)
            if bias is None
            else (bias > -math.inf).expand_as(scores)
        )
        scores = scores.masked_fill(~heard, -math.inf)
        winners = (scores == _top(scores, target, queries)) & heard
        logits = torch.zeros_like(scores) if bias is None else bias.expand_as(scores)
        logits = logits.masked_fill(~winners, -math.inf)
        return torch.exp(logits - _top(logits, target, queries))
    if similarity.log_form:
        logits = scores if bias is None else scores + bias
        return torch.exp(logits - _top(logits, target, queries))
    return scores if bias is None else scores * torch.exp(bias - _top(bias, target, queries))


def _top(logits, target, queries):
    """For each edge, the largest entry among the edges with its target; a constant to autograd."""
    logits = logits.detach()
    top = logits.new_full(logits.shape[:-1] + (queries,), -math.inf)
    top = top.scatter_reduce(-1, target.expand_as(logits), logits, "amax").index_select(-1, target)
    return top.masked_fill(top == -math.inf, 0)
