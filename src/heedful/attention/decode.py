"""Decoding: a few new tokens at a time, with everything that came before held in an explicit state.

A kernel needs its running total alone (`ScanState`, of constant size, normaliser included); anything else
keeps the keys and values (`CacheState`), of which only the last few when the pattern is a window.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..graphs import Graph
from .check import check_call
from .neighbors import Causal, Neighbors, as_neighbors
from .operator import _EVERYONE, _SOFTMAX, attend
from .position import Position
from .similarity import Similarity
from .strategies import STRATEGIES, CacheState, Call, Scan, ScanState
from .strategies.cache import append
from .transforms import autocast, lowered

_CAUSAL = Causal()
_COMPLETE = _EVERYONE.facts(1, 1)


def step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    state: ScanState | CacheState | None = None,
    *,
    similarity: Similarity = _SOFTMAX,
    neighbors: Neighbors | Graph = _CAUSAL,
    position: Position | None = None,
) -> tuple[Tensor, ScanState | CacheState]:
    """The next tokens of a causal `attend`, and the state to pass next time; None starts a sequence.

    Query, key and value hold the new tokens only, (..., heads, tokens, dim). Feeding a sequence in pieces of
    any lengths gives what `attend` gives for the whole.

    >>> import torch, heedful
    >>> q, k, v = torch.randn(3, 1, 6, 4)
    >>> whole = heedful.attend(q, k, v, neighbors=heedful.Causal())
    >>> first, state = heedful.step(q[:, :4], k[:, :4], v[:, :4])
    >>> rest, state = heedful.step(q[:, 4:], k[:, 4:], v[:, 4:], state)
    >>> torch.allclose(torch.cat([first, rest], 1), whole, atol=1e-6)
    True
    """
    if autocast(query):
        with torch.autocast(query.device.type, enabled=False):
            query, key, value = map(lowered, (query, key, value))
            return step(
                query, key, value, state, similarity=similarity, neighbors=neighbors, position=position
            )
    if isinstance(neighbors, Graph):
        neighbors = as_neighbors(neighbors)
    seen: tuple | None
    try:
        seen = (
            query.shape,
            key.shape,
            value.shape,
            (query.dtype, key.dtype, value.dtype),
            (query.device, key.device, value.device),
            similarity.signature,
            neighbors.shape_key,
            None if position is None else position.signature,
        )
        known = _KNOWN.get(seen)
    except (AttributeError, TypeError):  # something is not what it should be; checking says what
        seen = known = None
    if known is None:
        known = _checked(query, key, value, similarity, as_neighbors(neighbors), position)
        if seen is not None and not torch.compiler.is_compiling():
            if len(_KNOWN) > 1024:
                _KNOWN.clear()
            _KNOWN[seen] = known
    scans, back = known
    if position is not None and position.rotates:
        start = 0 if state is None else state.length
        query, key = position.rotate(query, start), position.rotate(key, start)
        position = None
    if scans:
        if state is not None and not isinstance(state, ScanState):
            raise TypeError(f"step(): {similarity} carries a ScanState, got {type(state).__name__}.")
        return _step_scan(Call(query, key, value, similarity, neighbors, position), state)
    if state is not None and not isinstance(state, CacheState):
        raise TypeError(
            f"step(): {similarity} with {neighbors} carries a CacheState, got {type(state).__name__}."
        )
    if state is not None:
        _continued("keys", state.key, key)
        _continued("values", state.value, value)
    state = append(state, key, value, back)
    if query.shape[-2] == 1:
        out = _listen(query, *state.last(back + 1), similarity, position)
    else:
        out = attend(query, *state.heard, similarity=similarity, neighbors=neighbors, position=position)
    if out.requires_grad:
        # The backward pass will read these rows; with none to spare, the next step copies them.
        state = CacheState(*state.heard, state.filled, state.length, [state.filled])
    return out, state


_KNOWN: dict[tuple, tuple[bool, float]] = {}


def _checked(query, key, value, similarity, neighbors, position) -> tuple[bool, float]:
    """Check a call; whether it scans with a state of constant size, and how far back it hears."""
    check_call(query, key, value, similarity, neighbors, position)
    if query.dim() < 3:
        raise ValueError(f"step(): query has shape {tuple(query.shape)}; it takes (..., heads, tokens, dim).")
    if query.shape[-2] != key.shape[-2]:
        raise ValueError(
            f"step(): {query.shape[-2]} queries for {key.shape[-2]} keys; pass the new tokens of each."
        )
    low, high = neighbors.facts(1 << 30, 1 << 30).interval or (-1, 0)
    if low < 0:
        raise ValueError(
            f"step(): {neighbors} looks ahead or depends on more than i−j; "
            f"use Causal(), or Causal() & Window(w)."
        )
    kernel = similarity.feature_count(query.shape[-1]) is not None
    facts = None if position is None else position.facts()
    decays = position is None or position.rotates or (facts is not None and facts.decay)
    return kernel and decays and high == float("inf"), high


def _listen(query: Tensor, key: Tensor, value: Tensor, similarity: Similarity, position) -> Tensor:
    """One query, which hears all keys: nothing to plan, though the length is new every time."""
    if position is not None:
        position.check((key.shape[-2] - 1, 0), query.shape[-3], query.shape[-1])
    way = STRATEGIES["fused" if similarity.kind == "dot" else "reference"]
    return way(Call(query, key, value, similarity, _EVERYONE, position, facts=_COMPLETE))


def _continued(name: str, kept: Tensor, new: Tensor) -> None:
    if kept.shape[:-2] != new.shape[:-2] or kept.shape[-1] != new.shape[-1] or kept.dtype != new.dtype:
        old = (*kept.shape[:-2], new.shape[-2], kept.shape[-1])
        raise ValueError(
            f"step(): new {name} are {tuple(new.shape)} of {new.dtype}, where the state takes {old} of "
            f"{kept.dtype}; go on with the same batch, heads, width and dtype, or start with state=None."
        )


def _step_scan(call: Call, state: ScanState | None) -> tuple[Tensor, ScanState]:
    dtype, repeats = call.query.dtype, call.heads // call.key.shape[-3]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    call.query, call.key, call.value = (x.to(wide) for x in (call.query, call.key, call.value))
    if repeats > 1:
        call.key, call.value = (x.repeat_interleave(repeats, -3) for x in (call.key, call.value))
    if state is not None:
        lead = torch.broadcast_shapes(call.key.shape[:-2], call.value.shape[:-2])
        features = call.similarity.feature_count(call.query.shape[-1])
        takes = (*lead, features, call.value.shape[-1] + 1)
        if state.total.shape != takes or state.total.dtype != wide:
            raise ValueError(
                f"step(): the state is {tuple(state.total.shape)} of {state.total.dtype}, where these tokens "
                f"and {call.similarity} need {takes} of {wide}; go on with the same batch, heads, widths, "
                f"dtype and similarity, or start with state=None."
            )
    out, state = Scan().step(call, state)
    return out.to(dtype), state
