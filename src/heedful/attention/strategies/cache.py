"""Keys and values kept for decoding, with room to grow."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class CacheState:
    """Keys and values heard so far, (..., H', capacity, d): the first `filled` rows are in use.

    `length` counts all tokens, those a window has forgotten too. Appending writes into spare rows, which a
    state shares with those it came from; `written` tells how many of them are taken, so that whoever goes on
    from an older state, as a beam search does, gets rows of its own.
    """

    key: Tensor
    value: Tensor
    filled: int
    length: int
    written: list[int]

    @property
    def heard(self) -> tuple[Tensor, Tensor]:
        return self.key[..., : self.filled, :], self.value[..., : self.filled, :]

    def last(self, count: float) -> tuple[Tensor, Tensor]:
        """The latest rows, at most so many."""
        if count >= self.filled:
            return self.heard
        start, count = self.filled - int(count), int(count)
        return self.key.narrow(-2, start, count), self.value.narrow(-2, start, count)


def append(state: CacheState | None, key: Tensor, value: Tensor, back: float = float("inf")) -> CacheState:
    """The cache with new rows at its end, without those farther `back` than any later listener hears."""
    new = key.shape[-2]
    if state is None:  # copies, for the caller may use its own again
        return CacheState(key.clone(), value.clone(), new, new, [new])
    if new == 0:
        return state
    keep = state.filled if back == float("inf") else min(state.filled, int(back))
    old = slice(state.filled - keep, state.filled)
    length, filled = state.length + new, state.filled
    if torch.is_grad_enabled() and any(x.requires_grad for x in (key, value, state.key, state.value)):
        key, value = (torch.cat([x[..., old, :], y], -2) for x, y in ((state.key, key), (state.value, value)))
        return CacheState(key, value, keep + new, length, [keep + new])
    if filled + new > state.key.shape[-2] or state.written[0] != filled:
        rows, filled = 2 * (keep + new), keep  # twice what is needed, so that growing is cheap on average
        state = CacheState(_moved(state.key, old, rows), _moved(state.value, old, rows), keep, length, [keep])
    state.key[..., filled : filled + new, :] = key
    state.value[..., filled : filled + new, :] = value
    state.written[0] = filled + new
    return CacheState(state.key, state.value, filled + new, length, state.written)


def _moved(x: Tensor, old: slice, rows: int) -> Tensor:
    """A tensor with room for so many `rows`, the `old` ones of x first."""
    room = x.new_empty(x.shape[:-2] + (rows, x.shape[-1]))
    room[..., : old.stop - old.start, :] = x[..., old, :]
    return room
