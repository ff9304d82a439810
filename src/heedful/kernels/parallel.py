"""Run a compiled row kernel over all rows of a CSR matrix, on as many threads as torch was given.

The kernels are serial and release the GIL; threads come from here. That keeps them re-entrant (two user
threads may call at once), safe after a fork, obedient to `torch.set_num_threads`, and quick to compile. Every
row is summed by one thread in one order, so results do not depend on how many threads there are.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch

# Below this many scalar operations a second thread costs more (about 40 µs to wake it) than it saves.
WORTH_A_THREAD = 200_000
PIECES = 6  # a thread


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="heedful")


os.register_at_fork(after_in_child=_pool.cache_clear)


def split_rows(rowptr: np.ndarray, parts: int) -> list[tuple[int, int]]:
    """Cut the rows into at most `parts` runs of about equally many edges (and rows, where edges are few)."""
    rows = len(rowptr) - 1
    load = np.asarray(rowptr, dtype=np.int64) + np.arange(rows + 1)  # an empty row still costs a write
    cuts = np.searchsorted(load, np.linspace(0, load[-1], parts + 1)[1:-1])
    bounds = [0, *cuts.tolist(), rows]
    return [(a, b) for a, b in itertools.pairwise(bounds) if b > a]


def over_rows(kernel: Callable, rowptr: np.ndarray, *arguments, work: int) -> None:
    """Call `kernel(first_row, last_row, rowptr, *arguments)` on pieces that together cover every row.

    `work` is roughly the number of scalar operations in all; small jobs stay on the calling thread. Larger
    ones are cut into more pieces than there are threads, and each thread takes the next when it is free:
    torch's own threads keep spinning for milliseconds after a product and hold up whoever shares their core.
    """
    threads = torch.get_num_threads() if work >= WORTH_A_THREAD else 1
    if threads == 1:
        if len(rowptr) > 1:
            kernel(0, len(rowptr) - 1, rowptr, *arguments)
        return
    pieces = iter(split_rows(rowptr, PIECES * threads))

    def take_turns():
        for first, last in pieces:  # advancing a list iterator is atomic
            kernel(first, last, rowptr, *arguments)

    others = [_pool(threads).submit(take_turns) for _ in range(threads - 1)]
    try:
        take_turns()
    finally:
        for other in others:
            other.result()
