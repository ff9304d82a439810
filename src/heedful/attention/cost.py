"""What a strategy would cost, in units that do not depend on the machine."""

from __future__ import annotations

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


# A tensor larger than this is given fresh pages by the allocator each time, and touching those costs more
# than the traffic itself: measured on Linux, three times as much again.
FRESH_PAGES = 32 * 2**20


def traffic(size: float, passes: float) -> float:
    """Bytes to count for `passes` reads or writes over a tensor of `size` bytes that is made anew."""
    return size * passes * (1 if size <= FRESH_PAGES else 4)
