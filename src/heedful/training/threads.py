"""How many threads a step is worth: short operations lose more by handing work to a second core than it
saves.

Which is faster can change while a run goes on. Two cores of a rented machine may be two cores for a minute
and the two halves of one in the next; then the second thread, which spins while it waits for work, takes
from the first what it needs. So the other number is tried again now and then.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from statistics import median

import torch

WARM = 2  # first steps, which compile and fill caches
TRIED = 4  # steps on another number of threads that are timed, after one that still has the old ones spinning
OFTEN, SHARE = 32, 0.02  # steps between two trials at the least, and what of the time they may cost


class Threads:
    """Takes steps on all threads or on one, whichever took less lately; leaves all as they were. Unless
    `worth`, nothing is timed.

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
        self._worth = worth and self.all > 1
        self._lately: deque[float] = deque(maxlen=TRIED)  # of the chosen number
        self._tried: list[float] = []  # of the other, in a trial
        self._wait = WARM + TRIED  # steps until the next trial

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self.all)

    @contextmanager
    def step(self) -> Iterator[None]:
        if not self._worth:
            yield
            return
        began = time.perf_counter()
        yield
        self._took(time.perf_counter() - began)

    def _took(self, seconds: float) -> None:
        """Note what a step took, and set the threads for the next."""
        if self._wait:
            self._lately.append(seconds)
            self._wait -= 1
            if not self._wait:
                torch.set_num_threads(self._other)
            return
        self._tried.append(seconds)
        if len(self._tried) <= TRIED:
            return
        kept, other = median(self._lately), median(self._tried[1:])
        if other < kept:
            self.chosen = self._other
            self._lately.extend(self._tried[1:])
        torch.set_num_threads(self.chosen)
        lost = max(kept, other) / max(min(kept, other), 1e-9) - 1  # steps' worth, by each step of a trial
        self._wait = max(OFTEN, ceil(len(self._tried) * min(lost, 10) / SHARE))
        self._tried = []

    @property
    def _other(self) -> int:
        return 1 if self.chosen == self.all else self.all
