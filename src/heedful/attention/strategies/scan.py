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
from ..similarity import Polynomial, RandomFeatures
from ..transforms import recompute
from .base import Call, Strategy, at_once, divide_ones, no_kernel, with_ones
from .expanded import (
    expanded,
    expanded_step,
    expands,
    features_cost,
    keeps_state,
    quadratic_cost,
)
from .factored import feature_flops
from .reference import prepare_launches


def chunk_length(features: int) -> int:
    """Long enough for efficient products and few chunks, short enough that pairs inside one stay cheap."""
    return 128 if features <= 64 else 256


@dataclass(frozen=True)
class ScanState:
    """What a listener needs to know of the past: Σ decayed φ(k)[v, 1]ᵀ, (..., H, features, e + 1).

    Its size is constant. The last column is the normaliser. `size` is what was taken out of the keys: the
    factor they were divided by (see `Polynomial.prepare`), or of each feature's exponents the largest (see
    `RandomFeatures.fitted`; None where the GPU's kernels took a constant).
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
        pattern, last = problem.neighbors, problem.queries == 1  # who stands last and hears everyone
        past = pattern.interval is not None and tuple(pattern.interval) == (0, math.inf)
        if not past and not (pattern.complete and last):
            return f"{pattern.name} is not the whole past"
        if problem.position is not None and not problem.position.decay:
            return f"{problem.position.name} does not decay geometrically"
        return None

    def flavor(self, problem):
        if _averages(problem.similarity, problem.position, problem.device):
            return "running mean"
        return expands(problem, causal=True) or self.name

    def cost(self, problem):
        if _averages(problem.similarity, problem.position, problem.device):
            numbers = problem.rows * max(problem.queries, problem.keys) * problem.value_dim
            return Cost(2 * numbers, traffic(problem.item * numbers, 2), 2 * problem.item * numbers, 4)
        way = expands(problem, causal=True)
        if way:
            return quadratic_cost(problem) if way == "quadratic" else features_cost(problem, causal=True)
        features, width = problem.similarity.features, problem.value_dim + 1
        chunk = min(chunk_length(features), problem.queries)
        length = problem.rows * max(problem.queries, problem.keys)
        inside = chunk * (2 * problem.dim + 2 * width + 4)
        between = 4 * features * width + 2 * feature_flops(problem)
        chunks = -(-max(problem.queries, problem.keys) // max(1, chunk))
        pieces = len(_pieces(problem.rows, max(problem.queries, problem.keys), features, problem.device))
        return Cost(
            length * (inside + between),
            problem.item * length * (4 * chunk + 6 * features),
            problem.item
            * problem.rows
            * (features * width * (chunks if problem.gradient else 2) + chunk * features),
            22 * pieces + prepare_launches(problem),
        )

    def __call__(self, call):
        out = expanded(call, self.run, causal=True)
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
        length = (state.length if state else 0) + call.keys
        size = factor = prepared = None
        if isinstance(similarity, Polynomial):  # keys are divided by the longest so far, and so is their sum
            size = similarity.key_size(call.key)
            if state is not None:
                if state.size is None:
                    raise TypeError(f"step(): the state was not made by {similarity}.")
                size = torch.maximum(size, state.size)
                factor = (state.size / size) ** similarity.degree
            key = similarity.append_root(call.key, sign=True) / size
            prepared = similarity.prepare_query(call.query), key
        if isinstance(similarity, RandomFeatures) and _measured(call, state):
            before = None if state is None else state.size
            similarity = similarity.fitted(call.key, before)
            size = similarity.taken(call.key)
            factor = None if before is None else torch.exp(before - size).mT
        else:
            found = expanded_step(call, total, factor, prepared)
            if found is not None:
                return found[0], ScanState(found[1], size, length)
        query, key = prepared or similarity.prepare(call.query, call.key)
        if total is not None and factor is not None:
            total = total * factor
        features = similarity.feature_count(call.query.shape[-1])
        out, total = _chunks(similarity, _decay(call), query, key, with_ones(call.value), total, features)
        return out, ScanState(total, size, length)


def _measured(call: Call, state: ScanState | None) -> bool:
    """Whether a total of random features is measured by its keys; what kernels may add to is not."""
    return not keeps_state(call) if state is None else state.size is not None


def _averages(similarity, position, device: str) -> bool:
    """Whether all there is to do is to add values up. On a GPU torch does that a thread a column."""
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


def _pieces(rows: int, length: int, features: int, device: str) -> list[tuple[int, int]]:
    """Where to cut `length` positions: (chunks, positions a chunk) of each piece, one after another.

    A piece is computed at once. On a CPU it is a chunk, which stays in its cache; elsewhere it is as many as
    memory has room for, since each piece costs two dozen launches.
    """
    chunk = chunk_length(features)
    numbers = rows * chunk * max(features, chunk)
    together = max(1, at_once(numbers, device) // max(1, numbers))
    whole = length // chunk
    rest = length - chunk * whole
    pieces = [(together, chunk)] * int(whole // together)
    if whole % together:
        pieces.append((whole % together, chunk))
    return pieces if pieces and not rest else [*pieces, (1, rest)]


def _cut(pieces: list[tuple[int, int]], *tensors: Tensor):
    """Each piece of the tensors, (..., positions, d) → (..., chunks, positions a chunk, d)."""
    split = (x.split([count * length for count, length in pieces], -2) for x in tensors)
    for (count, length), *parts in zip(pieces, *split, strict=True):
        yield [part.unflatten(-2, (count, length)) for part in parts]


def _absorb(similarity, decay, key, value, features):
    """The running total after these keys, without listening."""

    def piece(k, v, *rest):
        decay, total = _unpack(rest, decays)
        heard = _heard(_expanded(similarity.key_features, k), v, decay)
        return _carried(heard, k.shape[-2], decay, total)[1]

    total, decays = None, decay is not None
    pieces = _pieces(key.shape[:-2].numel(), key.shape[-2], features, key.device.type)
    for k, v in _cut(pieces, key, value):
        total = recompute(piece, k, v, *_given(decay, total), hidden=similarity.hidden)
    return total


def _chunks(similarity, decay, query, key, value, total, features):
    def piece(q, k, v, *rest):
        decay, total = _unpack(rest, decays)
        phi_k = _expanded(similarity.key_features, k)
        before, after = _carried(_heard(phi_k, v, decay), k.shape[-2], decay, total)
        mapped = similarity.kind == "features"  # then pairs, too, are compared by φ
        phi_q = None if before is None and not mapped else _expanded(similarity.query_features, q)
        scores = phi_q @ phi_k.mT if mapped else similarity.scores(q, k)
        if similarity.log_form:  # Uniform: log sim = 0
            scores = torch.exp(scores)
        return _listen(scores, v, phi_q, before, decay).flatten(-3, -2), after

    outs, decays = [], decay is not None
    pieces = _pieces(query.shape[:-2].numel(), query.shape[-2], features, query.device.type)
    for q, k, v in _cut(pieces, query, key, value):
        out, total = recompute(piece, q, k, v, *_given(decay, total), hidden=similarity.hidden)
        outs.append(out)
    return torch.cat(outs, -2), total


def _given(*tensors):
    return tuple(x for x in tensors if x is not None)


def _unpack(rest, decays: bool):
    """(decay, total) from what `_given` packed, the decay with a dimension for chunks: (H or 1, 1, 1, 1)."""
    decay, rest = (rest[0][..., None], rest[1:]) if decays else (None, rest)
    return decay, rest[0] if rest else None


def _expanded(phi, x: Tensor) -> Tensor:
    """φ of chunks. It sees them joined, (..., H, positions, d), for it may treat heads differently."""
    return phi(x.flatten(-3, -2)).unflatten(-2, x.shape[-3:-1])


def _heard(phi, value, decay):
    """Σ φ(k) vᵀ of each chunk as it arrives at its end, (..., chunks, features, e)."""
    if decay is not None:
        age = torch.arange(phi.shape[-2] - 1, -1, -1, device=phi.device, dtype=phi.dtype)[:, None]
        phi = phi * torch.exp(-decay * age)
    return phi.mT @ value


def _carried(heard, length, decay, total):
    """The running total before each chunk, (..., chunks, features, e) or None for nothing; after the last."""
    if heard.shape[-3] == 1:
        only = heard[..., 0, :, :]
        if total is None:
            return None, only
        return total[..., None, :, :], only + (
            total if decay is None else total * torch.exp(-decay[..., 0] * length)
        )
    first = torch.zeros_like(heard[..., :1, :, :]) if total is None else total[..., None, :, :]
    parts = torch.cat([first, heard], -3)
    place = torch.arange(parts.shape[-3], device=heard.device, dtype=heard.dtype)
    age = place[:, None] - place
    weight = (age >= 0).to(heard.dtype)
    if decay is not None:
        weight = weight * torch.exp(-decay[..., 0] * length * age.clamp_min(0))
    carried = (weight @ parts.flatten(-2)).unflatten(-1, parts.shape[-2:])
    return carried[..., :-1, :, :], carried[..., -1, :, :]


def _listen(scores, value, phi, before, decay):
    """What is said inside each chunk, by its pairs' scores, and what came before it, by φ of the queries."""
    place = torch.arange(scores.shape[-2], device=scores.device)
    distance = place[:, None] - place
    if decay is not None:
        scores = scores * torch.exp(-decay * distance.clamp_min(0))
    heard = scores.masked_fill(distance < 0, 0) @ value
    if before is not None:
        if decay is not None:
            phi = phi * torch.exp(-decay * (place + 1).to(phi.dtype)[:, None])
        heard = heard + phi @ before
    return divide_ones(heard)
