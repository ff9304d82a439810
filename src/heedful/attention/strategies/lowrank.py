"""The similarity matrix by `rank` of its rows and columns: E ≈ C U R, in O(N·rank·d), U from two SVDs.

C holds the columns of chosen keys, R the rows of chosen queries. U fits a sample of four times as many rows
and columns best, U = C_s⁺ E_s R_s⁺: inverting only where C and R cross, its small singular values would blow
errors up without bound. Exact when the matrix has no higher rank and the choice spans it. Points are chosen
one after another, each the farthest from those before.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..cost import TRANSCENDENTAL, Cost
from .base import Strategy, divide_ones, with_ones

SAMPLED = 4  # times the rank


class LowRank(Strategy):
    name = "lowrank"
    exact = False

    def __init__(self, rank: int = 64):
        if rank < 1:
            raise ValueError(f"LowRank(rank={rank}): must be 1 or more.")
        self.rank = rank

    def accepts(self, problem):
        if problem.similarity.kind not in ("dot", "additive", "power", "features"):
            return f"{problem.similarity.name} has no similarity matrix to factor"
        if problem.position is not None:
            return f"{problem.position.name} is not of low rank in general"
        if not problem.neighbors.complete:
            return f"{problem.neighbors.name} is not of low rank"
        if problem.dropout:
            return "dropout needs the weight of each pair"
        if min(problem.queries, problem.keys) <= self.rank:
            return f"the matrix has no more than {self.rank} rows or columns"
        return None

    def cost(self, problem):
        rank, length = self.rank, problem.rows * (problem.queries + problem.keys)
        return Cost(
            length * rank * (4 * problem.dim + 2 * problem.value_dim + TRANSCENDENTAL)
            + problem.rows * (60 * SAMPLED * rank**3 + 4 * (SAMPLED * rank) ** 2 * problem.dim),
            problem.item * length * rank * (4 + 2 * problem.dim / 8),
            problem.item * length * rank * 2,
            6 * rank + 60,
        )

    def run(self, call):
        similarity, rank = call.similarity, self.rank
        query, key = similarity.prepare(call.query, call.key)
        chosen_q, chosen_k = _take(query, _spread(query, rank)), _take(key, _spread(key, rank))
        columns, rows = similarity.scores(query, chosen_k), similarity.scores(chosen_q, key)
        some_q, some_k = _sample(query, chosen_q, SAMPLED * rank), _sample(key, chosen_k, SAMPLED * rank)
        some_columns, some_rows = similarity.scores(some_q, chosen_k), similarity.scores(chosen_q, some_k)
        sample = similarity.scores(some_q, some_k)
        if similarity.log_form:
            # A factor for each row of C cancels in the mean, one for each row of R inside of U; those of the
            # sample weigh its fit.
            columns = torch.exp(columns - columns.detach().amax(-1, keepdim=True))
            top = rows.detach().amax(-1, keepdim=True)
            rows, some_rows = torch.exp(rows - top), torch.exp(some_rows - top)
            top = torch.maximum(some_columns.amax(-1, keepdim=True), sample.amax(-1, keepdim=True))
            some_columns, sample = torch.exp(some_columns - top), torch.exp(sample - top)
        core = _pinv(some_columns) @ sample @ _pinv(some_rows)
        out = divide_ones(columns @ (core @ (rows @ with_ones(call.value))))
        if not similarity.positive:
            return out
        # A mean by positive weights lies among what is averaged, which an approximate one need not.
        return out.clamp(call.value.amin(-2, keepdim=True), call.value.amax(-2, keepdim=True))

    def __repr__(self):
        return f"LowRank(rank={self.rank})"


def _pinv(x: Tensor) -> Tensor:
    return torch.linalg.pinv(x.double(), rtol=1e-10 if x.dtype == torch.float64 else 1e-5).to(x.dtype)


def _sample(points: Tensor, chosen: Tensor, count: int) -> Tensor:
    """The chosen points and about so many at even distances."""
    step = max(1, points.shape[-2] // count)
    return torch.cat([chosen, points[..., ::step, :]], -2)


@torch.no_grad()
def _spread(points: Tensor, count: int) -> Tensor:
    """Indices (..., count) of points chosen one by one, each farthest from the ones before."""
    chosen = [torch.zeros(points.shape[:-2], dtype=torch.long, device=points.device)]
    distance = torch.full(points.shape[:-1], torch.inf, dtype=points.dtype, device=points.device)
    for _ in range(count - 1):
        last = _take(points, chosen[-1][..., None])
        distance = torch.minimum(distance, (points - last).square().sum(-1))
        chosen.append(distance.argmax(-1))
    return torch.stack(chosen, -1)


def _take(points: Tensor, index: Tensor) -> Tensor:
    return points.gather(-2, index[..., None].expand(index.shape + (points.shape[-1],)))
