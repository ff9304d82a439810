"""How many threads a step is worth: short operations lose more by handing work to a second core than it
saves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

TRIES = 4  # steps on all threads, and as many on one, after the first two, which compile and fill caches


class Threads:
    """Times the first steps on all threads and on one in turn, then stays with the faster; leaves all as they
    were. Unless `worth`, nothing is timed.

    >>> threads = Threads()
    >>> with threads:
    ...     for _ in range(20):
    ...         with threads.step():
    ...             _ = torch.ones(10) + 1
    >>> threads.chosen in (1, torch.get_num_threads())
    True
    """

    def __init__(self, *, worth: bool = True) -> None:
        self.all = torch.get_num_threads()
        self.chosen = self.all
        self._turns = [self.all, self.all, *[self.all, 1] * TRIES] if worth and self.all > 1 else []
        self._taken: list[float] = []

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self.all)

    @contextmanager
    def step(self) -> Iterator[None]:
        done = len(self._taken)
        if done == len(self._turns):
            yield
            return
        torch.set_num_threads(self._turns[done])
        began = time.perf_counter()
        yield
        self._taken.append(time.perf_counter() - began)
        if len(self._taken) == len(self._turns):
            self.chosen = 1 if min(self._taken[3::2]) < min(self._taken[2::2]) else self.all
            torch.set_num_threads(self.chosen)
