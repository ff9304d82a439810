"""φ(q)·(Σ_j φ(k_j) v_jᵀ): a kernel summed over everyone by associativity, in O(N·features).

φ is expanded a chunk at a time and dropped again, in the backward pass too; all N rows are never stored.
Where φ = 1, all listeners hear the same mean, and nothing is expanded at all.
"""

from __future__ import annotations

import torch

from ..cost import TRANSCENDENTAL, Cost
from ..transforms import recompute
from .base import Strategy, at_once, divide_ones, no_kernel, with_ones
from .expanded import expanded, expands, features_cost, quadratic_cost
from .reference import prepare_launches

FEATURES_AT_ONCE = 1 << 19  # elements of φ held at a time: 2 MiB in float32, which a CPU's cache holds


def chunk_length(rows: int, features: int, device: str) -> int:
    return max(64, at_once(FEATURES_AT_ONCE, device) // max(1, rows * features))


def feature_flops(problem) -> float:
    """Arithmetic to expand one row into its features."""
    if problem.similarity.kind == "power":
        return problem.similarity.features * problem.similarity.degree
    if problem.similarity.kind == "uniform":
        return 0
    # Of exponentials the largest of all keys is found first: half of all rows are expanded twice.
    once = 2 * problem.dim + TRANSCENDENTAL
    return problem.similarity.features * (once + problem.dim * (problem.similarity.map == "exponential"))


def mean_cost(problem) -> Cost:
    """Every value read once, one mean a head written for every listener."""
    read, written = (problem.rows * length * problem.value_dim for length in (problem.keys, problem.queries))
    return Cost(read, problem.item * (read + written), problem.item * problem.rows * problem.value_dim, 3)


class Factored(Strategy):
    name = "factored"

    def accepts(self, problem):
        reason = no_kernel(problem)
        if reason:
            return reason
        if problem.position is not None:
            return f"{problem.position.name} weighs each distance differently"
        if not problem.neighbors.complete:
            return f"{problem.neighbors.name} leaves someone out"
        return None

    def flavor(self, problem):
        if problem.similarity.kind == "uniform":
            return "mean"
        return expands(problem, causal=False) or self.name

    def cost(self, problem):
        if problem.similarity.kind == "uniform":
            return mean_cost(problem)
        way = expands(problem, causal=False)
        if way:
            return quadratic_cost(problem) if way == "quadratic" else features_cost(problem, causal=False)
        features, width = problem.similarity.features, problem.value_dim + 1
        length = problem.rows * (problem.queries + problem.keys)
        chunk = chunk_length(problem.rows, features, problem.device)
        chunks = -(-problem.queries // chunk) - (-problem.keys // chunk)
        return Cost(
            length * (2 * features * width + feature_flops(problem)),
            problem.item * length * (3 * features + problem.dim + width),
            problem.item * problem.rows * (features * width + 3 * min(chunk, problem.keys) * features),
            9 * chunks + prepare_launches(problem),
        )

    def __call__(self, call):
        mean = call.similarity.kind == "uniform"
        out = None if mean else expanded(call, self.run, causal=False)
        return super().__call__(call) if out is None else out

    def run(self, call):
        if call.similarity.kind == "uniform":
            mean = call.value.sum(-2, keepdim=True) / max(1, call.keys)
            return mean.expand(*call.query.shape[:-1], -1).contiguous()
        query, key = call.similarity.prepare(call.query, call.key)
        value, similarity = with_ones(call.value), call.similarity
        rows = query.shape[:-2].numel()
        chunk = chunk_length(rows, similarity.feature_count(call.query.shape[-1]), query.device.type)

        def hear(k, v):
            return similarity.key_features(k).mT @ v  # (..., features, e + 1)

        def speak(q, heard):
            return divide_ones(similarity.query_features(q) @ heard)

        parts = zip(key.split(chunk, -2), value.split(chunk, -2), strict=True)
        heard = sum(recompute(hear, k, v, hidden=similarity.hidden) for k, v in parts)
        out = [recompute(speak, q, heard, hidden=similarity.hidden) for q in query.split(chunk, -2)]
        return torch.cat(out, -2)
