"""Everyone, the past, a window: patterns that are one interval of i−j."""

from __future__ import annotations

from math import inf

import torch

from ..given import whole
from ..problem import NeighborFacts
from ..transforms import fixed
from .base import Neighbors


class Interval(Neighbors):
    """i heeds j when low ≤ i−j ≤ high."""

    low: float = -inf
    high: float = inf

    def allows(self, i, j, queries, keys):
        offset = i - j
        if self.low == -inf and self.high == inf:
            return torch.ones_like(offset, dtype=torch.bool)
        if self.high == inf:
            return offset >= self.low
        if self.low == -inf:
            return offset <= self.high
        return (offset >= self.low) & (offset <= self.high)

    def facts(self, queries, keys):
        return interval_facts(self.__repr__(), self.low, self.high, queries, keys)

    def pairs(self, queries, keys, device):
        i = torch.arange(queries, device=device) + (keys - queries)
        start = torch.zeros_like(i) if self.high == inf else (i - int(self.high)).clamp(0, keys)
        stop = torch.full_like(i, keys) if self.low == -inf else (i - int(self.low) + 1).clamp(0, keys)
        count = (stop - start).clamp_min(0)
        listener = torch.repeat_interleave(i, count)
        before = torch.cumsum(count, 0) - count
        speaker = torch.arange(listener.numel(), device=device) - torch.repeat_interleave(
            before - start, count
        )
        return listener, speaker


def interval_facts(name: str, low: float, high: float, queries: int, keys: int) -> NeighborFacts:
    complete = low <= -(queries - 1) and high >= keys - 1
    if complete:
        pairs = float(queries) * keys
    else:  # Σ_i |[max(0, i−high), min(keys, i−low+1))| over positions i
        pairs = _staircase(queries, keys, -low + 1) - _staircase(queries, keys, -high)
    reach = (-inf, inf) if complete else (low, high)
    return NeighborFacts(name, max(0.0, pairs), interval=reach, reach=reach, complete=complete)


def _staircase(queries: int, keys: int, shift: float) -> float:
    """Σ_i clamp(i + shift, 0, keys) over the listeners' positions i."""
    if shift == inf:
        return float(queries) * keys
    if shift == -inf:
        return 0.0
    first, last = keys - queries + shift, keys - 1 + shift
    total = lambda top: top * (top + 1) / 2 if top > 0 else 0.0  # noqa: E731
    rising = total(min(last, keys)) - total(min(first - 1, keys))
    flat = max(0.0, last - max(keys, first - 1)) * keys
    return rising + flat


class Everyone(Interval):
    """Every speaker is heard.

    >>> from heedful import Everyone
    >>> Everyone().facts(3, 4).pairs
    12.0
    """

    signature = ("Everyone",)

    def __repr__(self):
        return "Everyone()"


class Causal(Interval):
    """j ≤ i: listeners hear themselves and what came before.

    >>> from heedful import Causal
    >>> Causal().facts(3, 3).pairs
    6.0
    """

    low = 0
    signature = ("Causal",)

    def __repr__(self):
        return "Causal()"


class Window(Interval):
    """|i − j| ≤ width: a listener hears `width` positions to either side, and itself.

    >>> from heedful import Causal, Window
    >>> (Causal() & Window(2)).facts(5, 5).pairs
    12.0
    """

    def __init__(self, width: int):
        width = whole("Window(width", width, 1)
        self.low, self.high = -width, width
        self.signature = ("Window", width)

    def __repr__(self):
        return f"Window({fixed(self.high)})"
