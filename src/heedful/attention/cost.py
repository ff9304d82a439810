"""What a strategy would cost, in units that do not depend on the machine."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """One pass: arithmetic, traffic, the most memory held beyond inputs and output, operations launched.

    `flops` counts multiply-adds as two and a transcendental as `TRANSCENDENTAL`; `bytes` counts every read
    and write.
    """

    flops: float
    bytes: float
    memory: float
    launches: float

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.bytes + other.bytes,
            max(self.memory, other.memory),
            self.launches + other.launches,
        )

    def times(self, factor: float, *, memory: float = 1.0) -> Cost:
        return Cost(self.flops * factor, self.bytes * factor, self.memory * memory, self.launches * factor)


TRANSCENDENTAL = 16  # an exp, in units of one multiply or add, on hardware with vector units


def traffic(size: float, passes: float) -> float:
    """Bytes to count for `passes` reads or writes over a tensor of `size` bytes that is made anew.

    Out of the caches, and then given fresh pages by the allocator each time, a byte costs up to four times
    as much: measured on Linux, rising from 8 MiB to 64 MiB.
    """
    return size * passes * min(4.0, max(1.0, 1 + math.log2(max(size, 1) / 2**23)))
