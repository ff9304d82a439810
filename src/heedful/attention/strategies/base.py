"""What every strategy is: `accepts` a problem or says why not, tells its `cost`, and can `run` a call."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...kernels.drop_pairs import drop_pairs
from ...kernels.dropout import keep_mask
from ..cost import Cost
from ..neighbors import Neighbors, Tile
from ..position import Position
from ..problem import NeighborFacts, Problem
from ..similarity import Similarity
from ..transforms import eager_on_cpu, parts_of


@dataclass
class Call:
    """A call of attend() after checking: query (..., H, N, d), key (..., H', M, d), value (..., H', M, e)."""

    query: Tensor
    key: Tensor
    value: Tensor
    similarity: Similarity
    neighbors: Neighbors
    position: Position | None = None
    dropout: float = 0.0
    seed: Tensor | None = None
    facts: NeighborFacts | None = None  # what the neighbours declare at these lengths

    def __post_init__(self):
        if self.facts is None:
            self.facts = self.neighbors.facts(self.queries, self.keys)

    @property
    def queries(self) -> int:
        return self.query.shape[-2]

    @property
    def keys(self) -> int:
        return self.key.shape[-2]

    @property
    def heads(self) -> int:
        return self.query.shape[-3]

    def held(self) -> list[Tensor]:
        """What the pattern and the similarity hold, and a caller may write to."""
        own = [x for x in parts_of(self.similarity) if isinstance(x, Tensor)]
        return own + [x for _, x, _ in self.neighbors.carried()]

    def table(self) -> Tensor | None:
        """The position as a table over all offsets, (heads or 1, N + M − 1), or None."""
        if self.position is None:
            return None
        return self.position.table(self.queries, self.keys, self.heads, self.query)

    def drop(self, weights: Tensor, listener: Tensor, speaker: Tensor) -> Tensor:
        """Zero weights (..., H, *pairs) at random and rescale the rest.

        Which ones depends on the pair (on a graph: the edge) alone, not on the strategy.
        """
        assert self.seed is not None, "a call with dropout has a seed"
        lead = self.query.shape[:-2]
        head = torch.arange(lead.numel(), device=weights.device).view(
            *lead, *[1] * (weights.dim() - len(lead))
        )
        keep = keep_mask(self.seed, head, listener * self.keys + speaker, self.dropout)
        return weights * keep / (1 - self.dropout)

    def drop_tile(self, weights: Tensor, tile: Tile) -> Tensor:
        """The same for all pairs of a tile, (..., H, rows, columns)."""
        if not eager_on_cpu(weights):
            listener = torch.arange(*tile.rows, device=weights.device)[:, None]
            return self.drop(weights, listener, tile.j)
        assert self.seed is not None, "a call with dropout has a seed"
        return drop_pairs(weights, self.dropout, self.seed, (tile.rows[0], tile.columns[0]), self.keys)


class Strategy:
    """Base of all strategies. The planner reads `accepts` and `cost`; only `run` sees tensors."""

    name: str
    exact = True
    groups = False  # takes fewer key heads than query heads as they are
    narrow = False  # takes float16 and bfloat16 as they are, accumulating in float32

    def accepts(self, problem: Problem) -> str | None:
        """None, or the reason why not."""
        raise NotImplementedError

    def flavor(self, problem: Problem) -> str:
        """Which constants price this problem: a strategy whose problems run different code has several."""
        return self.name

    def cost(self, problem: Problem) -> Cost:
        """The forward pass."""
        raise NotImplementedError

    def gives_way(self, problem: Problem) -> tuple[str, str] | None:
        """(to which strategy, why), if the planner is to take that one where it can run, though slower."""
        return None

    def backward_cost(self, problem: Problem) -> Cost:
        """The backward pass; by default recompute, then twice the products."""
        return self.cost(problem).times(3, memory=2)

    def run(self, call: Call) -> Tensor:
        raise NotImplementedError

    def __call__(self, call: Call) -> Tensor:
        dtype = call.query.dtype
        if not self.narrow and dtype in (torch.float16, torch.bfloat16):
            call = replace(call, query=call.query.float(), key=call.key.float(), value=call.value.float())
        if not self.groups and call.key.shape[-3] != call.heads:
            repeats = call.heads // call.key.shape[-3]
            call = replace(
                call,
                key=call.key.repeat_interleave(repeats, -3),
                value=call.value.repeat_interleave(repeats, -3),
            )
        if call.similarity.map == "exponential":
            call = replace(call, similarity=call.similarity.fitted(call.key))
        out = self.run(call)
        return out if out.dtype == dtype else out.to(dtype)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


AT_ONCE_ELSEWHERE = 1 << 24  # numbers: 64 MiB in float32


def at_once(cached: int, device: str) -> int:
    """How many numbers to compute at a time: on a CPU what its cache holds. Elsewhere each piece costs
    launches, and the GPU waits for them, so pieces are large, though not so large that memory runs short.
    """
    return cached if device == "cpu" else AT_ONCE_ELSEWHERE


def with_ones(value: Tensor) -> Tensor:
    """A column of ones after the values: numerator and normaliser then come out of one product."""
    return torch.cat([value, value.new_ones(1).expand(value.shape[:-1] + (1,))], -1)


def divide(numerator: Tensor, normalizer: Tensor) -> Tensor:
    """The weighted mean; 0 where nothing was heard. No epsilon: it would change the answer."""
    empty = normalizer == 0
    return (numerator / normalizer.masked_fill(empty, 1)).masked_fill(empty, 0)


def divide_ones(totals: Tensor) -> Tensor:
    """`divide` for totals whose last column is the normaliser."""
    return divide(totals[..., :-1], totals[..., -1:])


def attend_block(
    call: Call, query: Tensor, key: Tensor, value: Tensor, tile: Tile, table: Tensor | None
) -> Tensor:
    """The defining formula on one tile that holds all neighbours of its rows; query and key are prepared."""
    from ..position import toeplitz_block

    bias = None if table is None else toeplitz_block(table, tile.rows, tile.columns, tile.keys)
    scores = call.similarity.scores(query, key)  # (..., rows, columns)
    weights = call.similarity.weigh(scores, bias, call.neighbors.mask(tile))
    normalizer = weights.sum(-1, keepdim=True)
    if call.dropout:
        weights = call.drop_tile(weights, tile)
    return divide(weights @ value, normalizer)


def no_pairs(problem: Problem) -> str | None:
    """Why a strategy that works by position cannot take these neighbours, if it cannot."""
    if problem.neighbors.attributes:
        return f"edges carry {' and '.join(problem.neighbors.attributes)}"
    if problem.neighbors.graph and problem.neighbors.repeated:
        return "an edge list (pairs may be joined by several edges)"
    if problem.neighbors.graph and problem.dropout:
        return "an edge list, where dropout counts edges and not pairs"
    return None


def no_kernel(problem: Problem) -> str | None:
    """Why a strategy that works through a feature map cannot take this problem, if it cannot."""
    if problem.similarity.features is None:
        return f"{problem.similarity.name} has no finite feature map"
    if problem.dropout:
        return "dropout needs the weight of each pair"
    return None
