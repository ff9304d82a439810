"""A kernel times any table of relative positions by FFT, in O(features · N log N).

    Σ_j T_{i−j} φ(q_i)·φ(k_j) v_j = Σ_c φ_c(q_i) · (T ∗ φ_c(k) v)_i,      T = exp(p)

one convolution for each feature and value column. Patterns that depend on i−j alone are tables too: T = 0
outside.

An FFT's error is absolute: about 1e-15 of the largest term, everywhere. A listener whose normaliser, or whose
heard values, are far below that scale would be wrong, so such rows are found afterwards and computed again
pair by pair.
"""

from __future__ import annotations

import math

import torch

from ..cost import Cost
from ..neighbors import Tile
from ..transforms import recompute
from .base import Strategy, attend_block, divide, no_kernel, with_ones
from .factored import feature_flops
from .reference import prepare_launches

COLUMNS_AT_ONCE = 1 << 21  # complex numbers held at a time: 32 MiB


def fast_length(length: int) -> int:
    """The least 2^a 3^b 5^c that is at least `length`: sizes that FFTs like."""
    best = 1 << max(0, (length - 1).bit_length())
    five = 1
    while five < best:
        three = five
        while three < best:
            rest = -(-length // three)
            best = min(best, three << max(0, (rest - 1).bit_length()))
            three *= 3
        five *= 5
    return best


class Toeplitz(Strategy):
    name = "toeplitz"

    def accepts(self, problem):
        reason = no_kernel(problem)
        if reason:
            return reason
        if problem.neighbors.interval is None:
            return f"{problem.neighbors.name} depends on more than i−j"
        if not problem.similarity.positive:
            return f"{problem.similarity.name} may be negative, so no error bound holds for its normaliser"
        if problem.transform:
            return f"its guard against small normalisers looks at values, which {problem.transform} cannot"
        return None

    def cost(self, problem):
        features, width = problem.similarity.features, problem.value_dim + 2
        length = fast_length(problem.queries + problem.keys - 1)
        columns = problem.rows * features * width
        group = max(1, COLUMNS_AT_ONCE // max(1, problem.rows * width * length))
        return Cost(
            columns * (2 * 5 * length * math.log2(max(2, length)) + 8 * length)
            + problem.rows * (problem.queries + problem.keys) * feature_flops(problem),
            columns * length * 8 * 8,
            problem.rows * length * width * 16 * 3 * min(group, features),
            12 * -(-features // group) + 30 + prepare_launches(problem),
        )

    def run(self, call):
        query, key = call.similarity.prepare(call.query, call.key)
        table = self._log_table(call)
        top = table.detach().amax(-1, keepdim=True)
        top = top.masked_fill(top == -math.inf, 0)
        length = fast_length(call.queries + call.keys - 1)
        spectrum = torch.fft.rfft(torch.exp(table.double() - top.double()), length)  # (H or 1, length/2 + 1)
        phi_q, phi_k = call.similarity.query_features(query), call.similarity.key_features(key)
        length_of_value = torch.linalg.vector_norm(call.value.detach(), dim=-1, keepdim=True)
        value = with_ones(torch.cat([call.value, length_of_value], -1))
        group = max(1, COLUMNS_AT_ONCE // max(1, query.shape[:-2].numel() * value.shape[-1] * length))
        totals = sum(
            recompute(
                lambda q, k, v, t: _convolve(q, k, v, t, call.queries, call.keys, length),
                q,
                k,
                value,
                spectrum,
            )
            for q, k in zip(phi_q.split(group, -1), phi_k.split(group, -1), strict=True)
        )
        out = divide(totals[..., :-2], totals[..., -1:])
        return self._guard(call, query, key, phi_q, phi_k, value, totals, out)

    def _log_table(self, call):
        """p over all offsets with the pattern written in, (H or 1, N + M − 1)."""
        offsets = torch.arange(1 - call.queries, call.keys, device=call.query.device)
        low, high = call.facts.interval
        table = call.table()
        if table is None:
            table = call.query.new_zeros(1, offsets.numel())
        return table.masked_fill((offsets < low) | (offsets > high), -math.inf)

    def _guard(self, call, query, key, phi_q, phi_k, value, totals, out):
        """Compute again, pair by pair, the rows that an FFT cannot resolve to the precision of the result.

        The last two columns sum the lengths of the values heard, and ones: what to compare an error with.
        """
        with torch.no_grad():
            heard = phi_k.abs().mT.double() @ value[..., -2:].double()
            scale = phi_q.abs().double() @ heard  # bounds every term
            error = 1e-15 * math.log2(call.queries + call.keys) * scale
            precise = 1e-7 if call.query.dtype == torch.float32 else 1e-12
            doubtful = (error > precise * totals[..., -2:].abs()).any(-1).flatten(0, -2).any(0)
        if not bool(doubtful.any()):
            return out
        table, parts, done = call.table(), [], 0
        for start, stop in _runs(doubtful.tolist()):
            parts.append(out[..., done:start, :])
            for first in range(start, stop, 64):
                rows = (first, min(first + 64, stop))
                tile = Tile(call.queries, call.keys, rows, (0, call.keys), query.device)
                again = attend_block(call, query[..., slice(*rows), :], key, call.value, tile, table)
                parts.append(again.to(out.dtype))
            done = stop
        return torch.cat([*parts, out[..., done:, :]], -2)


def _runs(flags: list[bool]) -> list[tuple[int, int]]:
    """The runs of True, as (start, stop)."""
    edges = [
        place
        for place in range(len(flags) + 1)
        if (flags[place : place + 1] == [True]) != (place > 0 and flags[place - 1])
    ]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _convolve(phi_q, phi_k, value, spectrum, queries, keys, length):
    """Σ_c φ_c(q_i) (T ∗ φ_c(k) v)_i for a group of features c, in float64."""
    # Wide before they meet: features may cancel, and what a product rounds would not cancel with them.
    terms = phi_k.double()[..., :, :, None] * value.double()[..., :, None, :]  # (..., M, c, e + 1)
    # Entry queries − 1 + (i − j) of the table meets term j: the convolution is read off at queries − 1 + i.
    waves = torch.fft.rfft(terms, length, dim=-3) * spectrum[..., :, None, None]
    start = queries - 1 + keys - queries
    heard = torch.fft.irfft(waves, length, dim=-3)[..., start : start + queries, :, :]
    return (phi_q.double()[..., None] * heard).sum(-2)
