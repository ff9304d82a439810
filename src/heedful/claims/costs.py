"""What a computation costs: multiplications counted, memory watched, time only where nothing else will do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ..attention.measure import peak_memory


def flops(function: Callable[[], object]) -> float:
    """Floating-point operations of the matrix products in a call, counted."""
    with FlopCounterMode(display=False) as counter:
        function()
    return float(counter.get_total_flops())


def memory(function: Callable[[], object]) -> float:
    """The most bytes held at once during a call."""
    with torch.no_grad():
        return peak_memory(function)


def over(
    sizes: Sequence[int], cost: Callable[[Callable], float], make: Callable[[int], Callable]
) -> list[float]:
    """The cost of `make(size)()` for every size."""
    return [cost(make(size)) for size in sizes]


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q kᵀ) v with all pairs at once, as a textbook writes it."""
    return torch.softmax(q @ k.T, -1) @ v


def triple(n: int, d: int, width: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Random queries, keys and values in single precision: their numbers do not matter here."""
    return torch.randn(n, d), torch.randn(n, d), torch.randn(n, width or d)
