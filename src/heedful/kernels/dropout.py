"""Dropout by counting: whether a pair is kept is a hash of (seed, head, counter), so it is never stored.

    keep(seed, head, counter, rate)  =  hash64(seed, head, counter) / 2⁶⁴ ≥ rate

The hash is splitmix64: the (head+1)-th number of the (hashed) seed's stream is the head's key, and the
counter-th number of the key's stream decides. Written twice, bit for bit the same: here in torch (any
device, compiles, vmaps) and in `sparse_numba.py`. Forward, backward, recomputation and every strategy
agree because they ask about the same pair.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# splitmix64's constants as the signed numbers with the same bits; torch's int64 wraps around as uint64 does.
GOLDEN, MIX_A, MIX_B = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def threshold(rate: float) -> int:
    """A pair is kept when the top 53 bits of its hash are at least this."""
    return math.ceil(rate * 2**53)


def kept_scale(rate: float) -> float:
    """What the kept weights are multiplied by so that the mean stays."""
    return 0.0 if rate >= 1 else 1 / (1 - rate)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical shift right: torch's >> copies the sign bit in, the mask takes it out again."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mixed(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * MIX_A
    x = (x ^ _shifted(x, 27)) * MIX_B
    return x ^ _shifted(x, 31)


def keep_mask(seed: Tensor, head: Tensor | int, counter: Tensor, rate: float) -> Tensor:
    """True where the pair is kept. `seed`, `head` and `counter` are int64 and broadcast against each other.

    >>> keep_mask(torch.tensor([7]), 0, torch.arange(6), rate=0.5).shape
    torch.Size([6])
    """
    return numbers(seed, head, counter) >= threshold(rate)


def numbers(seed: Tensor, head: Tensor | int, counter: Tensor) -> Tensor:
    """Whole numbers, evenly from 0 to 2⁵³ − 1, that (seed, head, counter) decide; int64, broadcasting."""
    head = head if isinstance(head, Tensor) else torch.full_like(seed, head)
    key = _mixed(_mixed(seed) + _counted(head + 1) * GOLDEN)
    return _shifted(_mixed(key + _counted(counter) * GOLDEN), 11)


def _counted(x: Tensor) -> Tensor:
    """x, which is not negative. To Inductor an arange is an index, and so is a product with one, computed in
    32 bits; a number it has masked is a number.
    """
    return x & (2**63 - 1) if torch.compiler.is_compiling() else x
