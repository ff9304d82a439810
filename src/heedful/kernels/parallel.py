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

    `work` is roughly the number of scalar operations in all; small jobs stay on the calling thread.
    """
    threads = torch.get_num_threads() if work >= WORTH_A_THREAD else 1
    pieces = split_rows(rowptr, threads) if threads > 1 else [(0, len(rowptr) - 1)]
    if len(pieces) <= 1:
        for first, last in pieces:
            kernel(first, last, rowptr, *arguments)
        return
    others = [_pool(threads).submit(kernel, first, last, rowptr, *arguments) for first, last in pieces[1:]]
    try:
        kernel(*pieces[0], rowptr, *arguments)
    finally:
        for other in others:
            other.result()
