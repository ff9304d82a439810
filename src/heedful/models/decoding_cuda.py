"""The decoder on a GPU: one token is one CUDA graph, recorded once for a model and a number of rows.

A graph cannot know at which token it is replayed, so the place is a tensor: keys and values are written where
it says, and all of the cache is read, masked beyond it. What is recorded reads the weights where they lie, so
it stays good while they are trained; it is made anew when they move. `decoding_few_rows.py` has a step of
fewer kernels, for few rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention.position import Rotary
from ..kernels.recording import captured
from ..nn import Attention
from .decoding import _feed_forward, _norm

if TYPE_CHECKING:
    from .gpt import GPT, State

_RECORDED: WeakKeyDictionary[Any, tuple[tuple, Steady]] = WeakKeyDictionary()
_TURNS: WeakKeyDictionary[Steady, ref[Turn]] = WeakKeyDictionary()


def recorded(gpt: GPT, state: State, room: int) -> Callable[[Tensor], Tensor] | None:
    """A decoder that goes on from `state`; None where a step cannot be recorded, or another text has it."""
    from .decoding_few_rows import few_rows_decoder

    weight = gpt.embedding.weight
    if weight.device.type != "cuda" or not steady(gpt) or torch.cuda.is_current_stream_capturing():
        return None
    rows, room = (
        state.blocks[0].key.shape[0],
        max(room, gpt.block or 0),
    )  # one recording for texts of any length
    key = (rows, room, *(p.data_ptr() for p in gpt.parameters()))
    known = _RECORDED.get(gpt)
    if known is None or known[0] != key:
        decoder = few_rows_decoder(gpt, rows, room) or Steady(gpt, rows, room)
        # From place 0, whatever the text's: the tokens it warms with need room as well.
        decoder.replay = captured(decoder.step, warm=min(3, room))
        known = _RECORDED[gpt] = (key, decoder)
    turn = turn_of(known[1])
    if turn is not None:
        known[1].begin(gpt, state)
    return turn


class Turn:
    """One text's turn at a recording, as long as somebody holds it."""

    def __init__(self, decoder: Steady):
        self.decoder = decoder

    def __call__(self, tokens: Tensor) -> Tensor:
        return self.decoder(tokens)


def turn_of(decoder: Steady) -> Turn | None:
    """The next turn, or None while another text is being written: there is one cache."""
    last = _TURNS.get(decoder)
    if last is not None and last() is not None:
        return None
    turn = Turn(decoder)
    _TURNS[decoder] = ref(turn)
    return turn


def steady(gpt: GPT) -> bool:
    """Whether every token is computed alike: nothing is forgotten, and positions can be looked up."""
    for module in gpt.modules():
        if isinstance(module, Attention):
            position = module.position
            plain = position is None or isinstance(position, Rotary) or not position.rotates
            if not plain or module.neighbors.facts(1 << 30, 1 << 30).interval[1] != float("inf"):
                return False
    return True


class Steady:
    """From the next tokens, (rows, 1), to logits, (rows, 1, vocabulary), with the place as a tensor."""

    def __init__(self, gpt: GPT, rows: int, room: int):
        self.rows, self.room, self.length = rows, room, 0
        self.embedding = gpt.embedding.weight
        device = self.embedding.device
        self.tokens = torch.zeros(rows, dtype=torch.long, device=device)
        self.place = torch.zeros(1, dtype=torch.long, device=device)
        self.all = torch.arange(room, device=device)
        self.places = None if gpt.positions is None else self._places(gpt)
        self.caches: list[Tensor] = []
        self.tables: list[Tensor | None] = []
        self.blocks = [self._block(block) for block in gpt.blocks]
        self.norm = _norm(gpt.norm)
        self.head = self.embedding if gpt.head is None else gpt.head.weight
        self.replay: Callable[[], Tensor] | None = None

    def _places(self, gpt: GPT) -> Tensor:
        assert gpt.positions is not None
        return gpt.positions(self.embedding.new_zeros(self.room, self.embedding.shape[-1]))

    def begin(self, gpt: GPT, state: State) -> None:
        """Take up a text: what it has said so far, and all that depends on weights but is not one of them."""
        self.length = state.length
        self.place.fill_(state.length)
        if self.places is not None:
            self.places.copy_(self._places(gpt))
        for cache, heard in zip(self.caches, state.blocks, strict=True):
            cache.zero_()  # what is masked must be a number all the same
            cache[:, :, :, : heard.filled] = torch.stack(heard.heard, 1)
        for n, block in enumerate(gpt.blocks):
            if self.tables[n] is not None:
                self.tables[n].copy_(_table(block.attention, self.room))  # type: ignore[union-attr]

    def __call__(self, tokens: Tensor) -> Tensor:
        if self.length >= self.room:  # a kernel would not say so
            raise IndexError(f"decoder(room={self.room}): has heard so many tokens; ask for more room.")
        self.length += 1
        self.tokens.copy_(tokens[:, 0])
        return self.step() if self.replay is None else self.replay()

    def step(self) -> Tensor:
        x = F.embedding(self.tokens, self.embedding)  # (rows, dim)
        if self.places is not None:
            x = x + self.places.index_select(0, self.place)
        heard = (self.all <= self.place)[None, None, None, :]
        for block in self.blocks:
            x = block(x, heard)
        self.place += 1
        return F.linear(self.norm(x), self.head)[:, None]

    def _block(self, block) -> Callable[[Tensor, Tensor], Tensor]:
        attend, think = self._attention(block.attention), _feed_forward(block.feed_forward)
        before, between = _norm(block.attention_norm), _norm(block.feed_forward_norm)

        def step(x: Tensor, heard: Tensor) -> Tensor:
            x = x + attend(before(x), heard)
            return x + think(between(x))

        return step

    def _attention(self, layer: Attention) -> Callable[[Tensor, Tensor], Tensor]:
        heed, both, last = self._heed(layer), layer.query_key_value, layer.output

        def attend(x: Tensor, heard: Tensor) -> Tensor:
            return F.linear(heed(F.linear(x, both.weight, both.bias), heard), last.weight, last.bias)

        return attend

    def _memory(self, layer: Attention) -> tuple[Tensor, _Turns | None, Tensor | None]:
        """A layer's cache, (rows, 2, kv_heads, room, width), its turns, and what distance adds."""
        weight, width = layer.query_key_value.weight, layer.head_dim
        cache = weight.new_zeros(self.rows, 2, layer.kv_heads, self.room, width)
        turns = table = None
        if isinstance(layer.position, Rotary):
            turns = _Turns(layer.position, width, self.room, weight)
        elif layer.position is not None:
            table = _table(layer, self.room)
        self.caches.append(cache)
        self.tables.append(table)
        return cache, turns, table

    def _heed(self, layer: Attention) -> Callable[[Tensor, Tensor], Tensor]:
        """From queries, keys and values of the new tokens, (rows, (heads + 2 kv_heads) · width), to what the
        heads hear, (rows, heads · width).
        """
        rows, heads, kv_heads, width = self.rows, layer.heads, layer.kv_heads, layer.head_dim
        cache, turns, table = self._memory(layer)
        keys, values = cache.unbind(1)
        scale = layer.similarity.resolved(width)
        options: dict[str, Any] = {"enable_gqa": heads != kv_heads, "scale": scale}
        if isinstance(scale, Tensor):  # torch takes a number only
            options["scale"] = 1.0

        def heed(z: Tensor, heard: Tensor) -> Tensor:
            z = z.view(rows, heads + 2 * kv_heads, 1, width)
            query, rest = z.split((heads, 2 * kv_heads), 1)
            if turns is not None:
                turned = turns(z[:, : heads + kv_heads], self.place)
                query, key = turned.split((heads, kv_heads), 1)
                rest = torch.cat((key, z[:, heads + kv_heads :]), 1)
            cache.index_copy_(3, self.place, rest.reshape(rows, 2, kv_heads, 1, width))
            if isinstance(scale, Tensor):
                query = query * scale.view(-1, 1, 1)
            mask = heard
            if table is not None:  # by distance: the newest token hears itself at 0
                mask = table.index_select(-1, (self.place - self.all).clamp(min=0)).masked_fill(
                    ~heard, -torch.inf
                )
            out = F.scaled_dot_product_attention(query, keys, values, mask, **options)
            return out.reshape(rows, heads * width)

        return heed


def _table(layer: Attention, room: int) -> Tensor:
    """What distance adds to the scores, (1, heads or 1, 1, room), distance 0 first."""
    assert layer.position is not None
    table = layer.position.table(1, room, layer.heads, layer.query_key_value.weight)
    return table.contiguous()[None, :, None]


class _Turns:
    """Turns queries and keys of one token, at a place that is a tensor."""

    def __init__(self, position: Rotary, width: int, room: int, like: Tensor):
        self.dims, self.interleaved = position.dims or width, position.interleaved
        wide = torch.float64 if like.dtype == torch.float64 else torch.float32
        turns = position.turns(self.dims, room, like.to(wide)[:0])
        self.cos, self.sin = turns.real.contiguous(), turns.imag.contiguous()

    def __call__(self, x: Tensor, place: Tensor) -> Tensor:
        cos, sin = self.cos.index_select(0, place), self.sin.index_select(0, place)
        turned = x[..., : self.dims].to(cos.dtype)
        a, b = turned.unflatten(-1, (-1, 2)).unbind(-1) if self.interleaved else turned.chunk(2, -1)
        parts = (a * cos - b * sin, a * sin + b * cos)
        turned = torch.stack(parts, -1).flatten(-2) if self.interleaved else torch.cat(parts, -1)
        return torch.cat([turned.to(x.dtype), x[..., self.dims :]], -1)
