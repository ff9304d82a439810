"""GPT.step for one token after another, with all that stays the same looked up once.

A token of a small model is some hundred tiny operations, and Python between them costs more than they do.
Here weights, views of the cache and position tables are taken out of their modules when a text begins; what
is left for each token is the formula, a few lines a block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention.position import Position, Rotary
from ..attention.similarity import Softmax
from ..attention.strategies import CacheState
from ..nn import Attention, Dropout, FeedForward, LearnedPositions, SinusoidalPositions, TransformerBlock
from ..nn.transformer import ACTIVATIONS

if TYPE_CHECKING:
    from .gpt import GPT, State

_PLAIN = (
    nn.Linear,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.Embedding,
    Dropout,
    nn.ModuleList,
    Attention,
    FeedForward,
    TransformerBlock,
    LearnedPositions,
    SinusoidalPositions,
)


def fits(gpt: GPT) -> bool:
    """Whether the model is softmax attention made of modules that do what their weights say, unobserved."""
    for module in gpt.modules():
        plain = module is gpt or type(module) in _PLAIN or isinstance(module, Position)
        if not plain or module._forward_hooks or module._forward_pre_hooks:
            return False
        if isinstance(module, Attention) and not isinstance(module.similarity, Softmax):
            return False
        if isinstance(module, TransformerBlock) and (module.order != "pre" or module.cross is not None):
            return False
    return not gpt.training and not torch.is_autocast_enabled(gpt.embedding.weight.device.type)


class Decoder:
    """From the next tokens, (rows, 1), to logits, (rows, 1, vocabulary); hears at most `room` tokens."""

    def __init__(self, gpt: GPT, state: State, room: int):
        self.length, self.room = state.length, room
        self.embedding = gpt.embedding.weight
        self.places = None
        if gpt.positions is not None:
            self.places = gpt.positions(self.embedding.new_zeros(room, self.embedding.shape[-1]))
        self.blocks = [
            _block(block, heard, room) for block, heard in zip(gpt.blocks, state.blocks, strict=True)
        ]
        self.norm = _norm(gpt.norm)
        self.head = self.embedding if gpt.head is None else gpt.head.weight

    def __call__(self, tokens: Tensor) -> Tensor:
        t = self.length
        x = F.embedding(tokens[:, 0], self.embedding)  # (rows, dim)
        if self.places is not None:
            x += self.places[t]
        for block in self.blocks:
            x = block(x, t)
        self.length += 1
        return F.linear(self.norm(x), self.head)[:, None]


def _block(block: TransformerBlock, heard: CacheState, room: int) -> Callable[[Tensor, int], Tensor]:
    attend, think = _attention(block.attention, heard, room), _feed_forward(block.feed_forward)
    before, between = _norm(block.attention_norm), _norm(block.feed_forward_norm)

    def step(x: Tensor, t: int) -> Tensor:
        x = x.add_(attend(before(x), t))
        return x.add_(think(between(x)))

    return step


def _attention(layer: Attention, heard: CacheState, room: int) -> Callable[[Tensor, int], Tensor]:
    weight, bias = layer.query_key_value.weight, layer.query_key_value.bias
    out_weight, out_bias = layer.output.weight, layer.output.bias
    heads, kv_heads, width = layer.heads, layer.kv_heads, layer.head_dim
    rows = heard.key.shape[0]
    # Keys and values lie in one buffer, as they come out of the product, so that one copy keeps both.
    kept = weight.new_empty(rows, 2, kv_heads, room, width)
    kept[:, :, :, : heard.filled] = torch.stack(heard.heard, 1)
    keys, values = kept.unbind(1)
    gone = heard.length - heard.filled  # tokens a window has forgotten
    back = layer.neighbors.facts(1 << 30, 1 << 30).interval[1]
    turn, bias_of = _turn(layer, room), _bias(layer, room)
    scale = layer.similarity.resolved(width)
    options: dict[str, Any] = {"enable_gqa": heads != kv_heads, "scale": scale}
    if isinstance(scale, Tensor):  # torch takes a number only
        options["scale"], scale = 1.0, scale.view(-1, 1, 1)

    def attend(x: Tensor, t: int) -> Tensor:
        z = F.linear(x, weight, bias).view(rows, heads + 2 * kv_heads, 1, width)
        if turn is not None:
            turn(z.narrow(1, 0, heads + kv_heads), t)
        t -= gone
        kept.narrow(3, t, 1).copy_(z.narrow(1, heads, 2 * kv_heads).view(rows, 2, kv_heads, 1, width))
        query = z.narrow(1, 0, heads)
        if isinstance(scale, Tensor):
            query = query * scale
        count = t + 1 if back >= t else int(back) + 1
        key, value = keys.narrow(2, t + 1 - count, count), values.narrow(2, t + 1 - count, count)
        mask = None if bias_of is None else bias_of.narrow(-1, room - count, count)
        if mask is not None and mask.is_cuda:  # where it begins, a kernel of torch's may not read 16 bytes
            mask = mask.clone(memory_format=torch.contiguous_format)
        out = F.scaled_dot_product_attention(query, key, value, mask, **options)
        return F.linear(out.reshape(rows, heads * width), out_weight, out_bias)

    return attend


def _turn(layer: Attention, room: int) -> Callable[[Tensor, int], object] | None:
    """Turns queries and keys of one token in place, for rotary positions."""
    position = layer.position
    if position is None or not position.rotates:
        return None
    weight = layer.query_key_value.weight
    if (
        isinstance(position, Rotary)
        and position.interleaved
        and weight.dtype in (torch.float32, torch.float64)
    ):
        dims = position.dims or layer.head_dim
        turns = position.turns(dims, room, weight)

        def turn(x: Tensor, t: int) -> object:
            return torch.view_as_complex(x[..., :dims].unflatten(-1, (-1, 2))).mul_(turns[t])

        return turn
    return lambda x, t: x.copy_(position.rotate(x, t))


def _bias(layer: Attention, room: int) -> Tensor | None:
    """What distance adds to the scores, the newest token last, (1, heads, 1, room)."""
    if layer.position is None or layer.position.rotates:
        return None
    table = layer.position.table(1, room, layer.heads, layer.query_key_value.weight)
    return table.flip(-1)[None, :, None]


def _feed_forward(layer: FeedForward) -> Callable[[Tensor], Tensor]:
    weight, bias, out_weight, out_bias = (
        layer.input.weight,
        layer.input.bias,
        layer.output.weight,
        layer.output.bias,
    )
    activation = ACTIVATIONS[layer.activation]
    return lambda x: F.linear(activation(F.linear(x, weight, bias)), out_weight, out_bias)


def _norm(layer: Any) -> Callable[[Tensor], Tensor]:
    shape, weight, eps = layer.normalized_shape, layer.weight, layer.eps
    if isinstance(layer, nn.RMSNorm):
        return lambda x: torch.rms_norm(x, shape, weight, eps)
    bias = layer.bias
    return lambda x: torch.layer_norm(x, shape, weight, bias, eps)
