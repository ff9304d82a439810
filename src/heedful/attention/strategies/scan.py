"""Causal kernels in chunks: within a chunk by pairs, what came before as one running total of φ(k) vᵀ.

    out_i ∝ φ(q_i)·S_i,   S_i = λ S_{i−1} + φ(k_i) [v_i, 1]ᵀ      (λ = exp(−slope) with Alibi, else 1)

O(N·features) time. Decoding carries S alone, whatever the length: `step` takes it and gives it back.
Where φ = 1 and nothing decays, S is a cumulative sum of the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from ..cost import Cost, traffic
from ..similarity import Polynomial
from ..transforms import recompute
from .base import Call, Strategy, divide_ones, no_kernel, with_ones
from .expanded import expanded, expands
from .factored import expanded_cost, feature_flops
from .reference import prepare_launches


def chunk_length(features: int) -> int:
    """Long enough for efficient products and few chunks, short enough that pairs inside one stay cheap."""
    return 128 if features <= 64 else 256


@dataclass(frozen=True)
class ScanState:
    """What a listener needs to know of the past: Σ decayed φ(k)[v, 1]ᵀ, (..., H, features, e + 1).

    Its size is constant. The last column is the normaliser. `size` is the factor the keys were divided by
    (see `Polynomial.prepare`).
    """

    total: Tensor
    size: Tensor | None = None
    length: int = 0


class Scan(Strategy):
    name = "scan"

    def accepts(self, problem):
        reason = no_kernel(problem)
        if reason:
            return reason
        interval = problem.neighbors.interval
        if interval is None or tuple(interval) != (0, math.inf):
            return f"{problem.neighbors.name} is not the whole past"
        if problem.position is not None and not problem.position.decay:
            return f"{problem.position.name} does not decay geometrically"
        return None

    def _expands(self, problem):
        return expands(problem) and problem.position is None and problem.queries == problem.keys

    def flavor(self, problem):
        if _averages(problem.similarity, problem.position, problem.device):
            return "running mean"
        return "quadratic" if self._expands(problem) else self.name

    def cost(self, problem):
        if _averages(problem.similarity, problem.position, problem.device):
            numbers = problem.rows * max(problem.queries, problem.keys) * problem.value_dim
            return Cost(2 * numbers, traffic(problem.item * numbers, 2), 2 * problem.item * numbers, 4)
        if self._expands(problem):
            return expanded_cost(problem)
        features, width = problem.similarity.features, problem.value_dim + 1
        chunk = min(chunk_length(features), problem.queries)
        length = problem.rows * max(problem.queries, problem.keys)
        inside = chunk * (2 * problem.dim + 2 * width + 4)
        between = 4 * features * width + 2 * feature_flops(problem)
        chunks = -(-max(problem.queries, problem.keys) // max(1, chunk))
        return Cost(
            length * (inside + between),
            problem.item * length * (4 * chunk + 6 * features),
            problem.item
            * problem.rows
            * (features * width * (chunks if problem.gradient else 2) + chunk * features),
            22 * chunks + prepare_launches(problem),
        )

    def __call__(self, call):
        out = expanded(call, causal=True)
        return super().__call__(call) if out is None else out

    def run(self, call):
        if _averages(call.similarity, call.position, call.query.device.type):
            return _running_mean(call)
        state = None
        ahead = call.keys - call.queries
        if ahead < 0:  # the first listeners stand before every speaker and hear nobody
            silent = call.value.new_zeros(call.query.shape[:-2] + (-ahead, call.value.shape[-1]))
            rest = Call(
                call.query[..., -ahead:, :],
                call.key,
                call.value,
                call.similarity,
                call.neighbors,
                call.position,
            )
            return torch.cat([silent, self.run(rest)], -2) if call.keys else silent
        query, key = call.similarity.prepare(call.query, call.key)
        value, decay = with_ones(call.value), _decay(call)
        features = call.similarity.feature_count(call.query.shape[-1])
        if ahead:
            state = _absorb(call.similarity, decay, key[..., :ahead, :], value[..., :ahead, :], features)
        out, _ = _chunks(
            call.similarity, decay, query, key[..., ahead:, :], value[..., ahead:, :], state, features
        )
        return out

    def step(self, call: Call, state: ScanState | None) -> tuple[Tensor, ScanState]:
        """Hear the new tokens of `call`, as many queries as keys, after everything in `state`."""
        similarity = call.similarity
        total = None if state is None else state.total
        size = None
        if isinstance(similarity, Polynomial):
            query, size = similarity.prepare_query(call.query), similarity.key_size(call.key)
            if state is not None:
                if state.size is None:
                    raise TypeError(f"step(): the state was not made by {similarity}.")
                size = torch.maximum(size, state.size)
                total = state.total * (state.size / size) ** similarity.degree
            key = similarity.append_root(call.key, sign=True) / size
        else:
            query, key = similarity.prepare(call.query, call.key)
        features = similarity.feature_count(call.query.shape[-1])
        out, total = _chunks(similarity, _decay(call), query, key, with_ones(call.value), total, features)
        return out, ScanState(total, size, (state.length if state else 0) + call.keys)


def _averages(similarity, position, device: str) -> bool:
    """Whether all there is to do is to add values up. Not on a GPU, where that was not measured."""
    return similarity.kind == "uniform" and position is None and device == "cpu"


def _running_mean(call: Call) -> Tensor:
    ahead = call.keys - call.queries
    first = max(0, ahead)  # the first listener there is who hears someone
    heard = torch.arange(first + 1, call.keys + 1, device=call.value.device)[:, None]
    mean = call.value.cumsum(-2)[..., first:, :] / heard
    return mean if ahead >= 0 else F.pad(mean, (0, 0, -ahead, 0))


def _decay(call: Call) -> Tensor | None:
    """−log λ for each head, (H or 1, 1, 1)."""
    return None if call.position is None else call.position.rates(call.heads, call.query)[:, None, None]


def _absorb(similarity, decay, key, value, features):
    """The running total after these keys, without listening."""
    total = None
    length = chunk_length(features)
    for k, v in zip(key.split(length, -2), value.split(length, -2), strict=True):

        def chunk(k, v, *rest):
            return _advance(similarity, k, v, *_unpack(decay, rest))

        total = recompute(chunk, k, v, *_given(decay, total), hidden=similarity.hidden)
    return total


def _given(*tensors):
    return tuple(x for x in tensors if x is not None)


def _unpack(decay, rest):
    """(decay, total) from what `_given` packed."""
    return (None, *rest) if decay is None else rest


def _advance(similarity, key, value, decay, total=None):
    length = key.shape[-2]
    phi = similarity.key_features(key)
    if decay is not None:
        age = torch.arange(length - 1, -1, -1, device=key.device, dtype=key.dtype)[:, None]
        phi = phi * torch.exp(-decay * age)
    heard = phi.mT @ value
    if total is None:
        return heard
    return heard + (total if decay is None else total * torch.exp(-decay * length))


def _listen(similarity, query, key, value, decay, total=None):
    """A chunk: pairs inside it, the running total for what came before."""
    length = query.shape[-2]
    scores = similarity.scores(query, key)
    if similarity.log_form:  # Uniform: log sim = 0
        scores = torch.exp(scores)
    distance = torch.arange(length, device=query.device)[:, None] - torch.arange(length, device=query.device)
    if decay is not None:
        scores = scores * torch.exp(-decay * distance.clamp_min(0))
    heard = scores.masked_fill(distance < 0, 0) @ value
    if total is not None:
        phi = similarity.query_features(query)
        if decay is not None:
            phi = phi * torch.exp(
                -decay * torch.arange(1, length + 1, device=query.device, dtype=query.dtype)[:, None]
            )
        heard = heard + phi @ total
    return divide_ones(heard)


def _chunks(similarity, decay, query, key, value, total, features):
    def chunk(q, k, v, *rest):
        decay_and_total = _unpack(decay, rest)
        return _listen(similarity, q, k, v, *decay_and_total), _advance(similarity, k, v, *decay_and_total)

    length, outs = chunk_length(features), []
    for q, k, v in zip(*(x.split(length, -2) for x in (query, key, value)), strict=True):
        out, total = recompute(chunk, q, k, v, *_given(decay, total), hidden=similarity.hidden)
        outs.append(out)
    return torch.cat(outs, -2), total
