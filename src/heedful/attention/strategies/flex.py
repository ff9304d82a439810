"""torch's FlexAttention: softmax with windows, relative terms and block masks, compiled on the GPU.

On the CPU it runs uncompiled, forward only, and serves as a second opinion.
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from ..cost import TRANSCENDENTAL, Cost
from ..transforms import lasting
from .base import Strategy, no_pairs
from .fused import scaled

SHAPES = 256  # compiled for each; past eight torch would run without its kernel, a hundred times slower
# Fewer queries go to another kernel of torch's, whose rows are the queries of all heads that share a key: of
# more than 128 rows it has none to choose.
SHORT = 128
WIDE = 64  # features a block of float32 has room for: more take three times as long each


class Flex(Strategy):
    name = "flex"
    groups = True
    narrow = True

    def accepts(self, problem):
        if problem.similarity.kind != "dot":
            return f"{problem.similarity.name} is not an exponential of a dot product"
        reason = no_pairs(problem)
        if reason or problem.neighbors.graph:
            return reason or "an edge list"
        if not problem.neighbors.listed:
            return "a mask of its own for each batch entry"
        if problem.dropout:
            return "FlexAttention has no dropout"
        if problem.dtype == "float64":
            return "FlexAttention has no float64"
        if problem.transform:
            return f"FlexAttention inside {problem.transform} is not supported here"
        if problem.device == "cpu" and problem.gradient:
            return "FlexAttention trains on the GPU only"
        return None

    def cost(self, problem):
        on_gpu = problem.device != "cpu"
        pairs = problem.rows * problem.queries * (problem.width + 128 if on_gpu else problem.keys)
        dims = problem.dim + problem.value_dim
        if on_gpu:
            dims = _width(problem.dim) + _width(problem.value_dim)
            dims *= 3 if max(problem.dim, problem.value_dim) > WIDE and problem.item > 2 else 1
        traffic = problem.tensor_bytes if on_gpu else problem.item * pairs * 24
        return Cost(
            pairs * (2 * dims + TRANSCENDENTAL),
            traffic,
            problem.queries * problem.keys / 128 / 128 * 8 if on_gpu else 6 * pairs * problem.item,
            6 if on_gpu else 400,
        )

    def run(self, call):
        query, key, value, scale = scaled(call)
        lead = query.shape[:-3]
        query, key, value = (x.flatten(0, -4) if len(lead) else x[None] for x in (query, key, value))
        queries, keys, neighbors, table = call.queries, call.keys, call.neighbors, call.table()
        repeats = query.shape[-3] // key.shape[-3]
        if repeats > 1 and queries < SHORT:
            key, value = (x.repeat_interleave(repeats, -3) for x in (key, value))
        width = value.shape[-1]
        query, key, value = _padded(query), _padded(key), _padded(value)
        if not torch.is_grad_enabled():  # FlexAttention refuses what could want a gradient, wanted or not
            query, key, value = query.detach(), key.detach(), value.detach()
            table = None if table is None else table.detach()

        def score_mod(score, batch, head, q_index, k_index):
            return score + table[head if table.shape[0] > 1 else 0, q_index + keys - 1 - k_index]

        block_mask = None
        if not neighbors.facts(queries, keys).complete:
            kept = not (neighbors.carried() or torch.compiler.is_compiling())  # tensors may change
            block_mask = (_blocks if kept else _blocks.__wrapped__)(neighbors, queries, keys, query.device)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*flex_attention called without torch.compile.*")
            out = _flex(query.device.type)(
                query.contiguous(),
                key.contiguous(),
                value.contiguous(),
                score_mod=None if table is None else score_mod,
                block_mask=block_mask,
                scale=scale,
                enable_gqa=key.shape[-3] != query.shape[-3],
            )
        return out[..., :width].reshape(*lead, *out.shape[1:-1], width)


def _padded(x: Tensor) -> Tensor:
    """Zeros up to a power of two: torch's kernel takes five times as long for 96 features as for 128."""
    return F.pad(x, (0, _width(x.shape[-1]) - x.shape[-1])) if x.is_cuda else x


def _width(features: int) -> int:
    return features if features <= WIDE else 1 << (features - 1).bit_length()


@lru_cache(32)
def _blocks(neighbors, queries: int, keys: int, device: torch.device):
    """Which blocks of pairs hold any, kept: making it takes longer than many a call."""
    from torch.nn.attention.flex_attention import create_block_mask

    shift = keys - queries

    def mask_mod(batch, head, q_index, k_index):
        return neighbors.allows(q_index + shift, k_index, queries, keys)

    with lasting():
        return create_block_mask(mask_mod, None, None, queries, keys, device=device)


@cache
def _flex(device: str):
    from torch.nn.attention.flex_attention import flex_attention

    if device != "cuda":
        return flex_attention
    from torch._dynamo import config

    compiled = torch.compile(flex_attention, dynamic=False)

    def call(*args, **options):
        if torch.compiler.is_compiling():
            return flex_attention(*args, **options)
        with config.patch(recompile_limit=SHAPES):
            return compiled(*args, **options)

    return call
