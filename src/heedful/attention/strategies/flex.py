"""torch's FlexAttention: softmax with windows, relative terms and block masks, compiled on the GPU.

On the CPU it runs uncompiled, forward only, and serves as a second opinion.
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

from ...kernels.compiling import constant_to_compiler
from ..cost import TRANSCENDENTAL, Cost
from ..transforms import lasting
from .base import Strategy, no_pairs
from .fused import needs_mask, scaled
from .squares import AT_ONCE, squares

SHAPES = 256  # compiled for each; past eight torch would run without its kernel, a hundred times slower
# Fewer queries go to another kernel of torch's, whose rows are the queries of all heads that share a key: of
# more than 128 rows it has none to choose.
SHORT = 128
WIDE = 64  # features up to which any number is as good as a power of two
# Products of float32 numbers by tensor cores, each factor as the sum of two tf32 numbers: as accurate as
# torch's own choice, one by one, and two to six times as fast. Wider heads would not fit its blocks.
PRODUCTS, WIDEST = "'tf32x3'", 128
LEAST = 32  # features that a block takes as long for as for fewer
BLOCK = 128  # queries, and keys, that are looked at or left out together
ANEW = 12  # launches like its own, which are long: the 55 operations that find a mask's blocks at every call
A_ROW_A_HEAD = torch.__version__ < "2.11"  # versions compare by number; older ones cannot look up row 0
LOOKUP = 96  # what it takes to find a pair's entry in a table, in multiplications


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

    def gives_way(self, problem):
        # Without a gradient float32 is up to twice as fast here, but lengths then change from call to call.
        if problem.device == "cuda" and not needs_mask(problem):
            return "fused", "it compiles for seconds at every new length"
        return None

    def cost(self, problem):
        pairs = problem.rows * problem.queries * problem.keys
        if problem.device == "cpu":
            flops = pairs * (2 * problem.dim + 2 * problem.value_dim + TRANSCENDENTAL)
            return Cost(flops, problem.item * pairs * 24, 6 * pairs * problem.item, 400)
        pattern, placed = problem.neighbors, problem.position is not None
        # Blocks that hold no pair are left out. Those at an edge of the pattern are partly empty: a listener
        # has one of them, or two if the pattern is no interval.
        edges = 1 if pattern.interval is not None else 2
        heard = min(pattern.pairs + edges * BLOCK * problem.queries, pairs / problem.rows)
        pairs = problem.rows * heard
        dims = max(_width(problem.dim), LEAST) + max(_width(problem.value_dim), LEAST)
        # Without tensor cores heads of 128 took six times as long; wider ones were not raced.
        dims *= 12 if max(problem.dim, problem.value_dim) > WIDEST and problem.item > 2 else 1
        looked_at = 0 if pattern.lasting else 9 * min(problem.queries * problem.keys, AT_ONCE)
        return Cost(
            pairs * (2 * dims + TRANSCENDENTAL + LOOKUP * placed),
            problem.tensor_bytes,
            problem.queries * problem.keys / BLOCK**2 * 8 + looked_at,
            6 + 2 * placed + (0 if pattern.lasting else ANEW),
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

        if table is not None and A_ROW_A_HEAD:
            table = table.expand(call.heads, -1).contiguous()

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
                kernel_options=_options(query, max(query.shape[-1], value.shape[-1])),
            )
        return out[..., :width].reshape(*lead, *out.shape[1:-1], width)


def _options(query: Tensor, width: int) -> dict[str, str] | None:
    if query.is_cuda and query.dtype == torch.float32 and width <= WIDEST and _tensor_cores(query.device):
        return {"FLOAT32_PRECISION": PRODUCTS}
    return None


@constant_to_compiler
def _tensor_cores(device: torch.device) -> bool:
    """Whether there are any for tf32, and the user has not allowed to round to it, which is faster still."""
    rounded = torch.backends.cuda.matmul.fp32_precision == "tf32"
    return not (rounded or torch.version.hip) and torch.cuda.get_device_capability(device) >= (8, 0)


def _padded(x: Tensor) -> Tensor:
    """Zeros up to a power of two: torch's kernel takes seven times as long for 96 features as for 128."""
    missing = _width(x.shape[-1]) - x.shape[-1] if x.is_cuda else 0
    return F.pad(x, (0, missing)) if missing else x  # torch would copy x for nothing


def _width(features: int) -> int:
    return features if features <= WIDE else 1 << (features - 1).bit_length()


@lru_cache(32)
def _blocks(neighbors, queries: int, keys: int, device: torch.device):
    """Which blocks of pairs hold any, kept: making it takes longer than many a call."""
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask

    shift = keys - queries

    def mask_mod(batch, head, q_index, k_index):
        return neighbors.allows(q_index + shift, k_index, queries, keys)

    if torch.compiler.is_compiling():  # then torch's own keeps no pairs
        return create_block_mask(mask_mod, None, None, queries, keys, device=device)
    with lasting():
        heard = torch.zeros(-(-queries // BLOCK), -(-keys // BLOCK), dtype=torch.int64, device=device)
        for top, left, cut in squares(neighbors, queries, keys, BLOCK, device):
            heard[top : top + cut.shape[0], left : left + cut.shape[1]] = cut.sum((-2, -1))
        whole = heard == BLOCK * BLOCK
        return BlockMask.from_kv_blocks(
            *_listed((heard > 0) & ~whole), *_listed(whole), BLOCK, mask_mod, (queries, keys)
        )


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many of each row's blocks are asked for, and which, first; with dimensions for batch and heads."""
    order = torch.argsort(blocks.byte(), dim=-1, descending=True, stable=True)
    return blocks.sum(-1).int()[None, None], order.int()[None, None]


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
