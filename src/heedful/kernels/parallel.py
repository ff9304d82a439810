"""Run a compiled row kernel over all rows of a CSR matrix, on as many threads as torch was given.

The kernels are serial and release the GIL; threads come from here. That keeps them re-entrant (two user
threads may call at once), safe after a fork, obedient to `torch.set_num_threads`, and quick to compile. Every
row is summed by one thread in one order, so results do not depend on how many threads there are.

The threads are torch's own where they can be had. Torch's OpenMP workers spin for milliseconds after a
product, waiting for the next; threads of ours would share the cores with them and lose half their time.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import torch

# Below this many scalar operations (0.3 ms) a second thread saves no more than handing it work costs, 80 µs.
WORTH_A_THREAD = 1_000_000
PIECES = 6  # a thread

_TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_forked = False


def _child_of_a_fork() -> None:
    global _forked
    _forked = True  # OpenMP's workers do not survive a fork, and do not know it
    _pool.cache_clear()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="heedful")


os.register_at_fork(after_in_child=_child_of_a_fork)


@cache
def _openmp() -> Callable | None:
    """`GOMP_parallel(task, data, threads, flags)` of the OpenMP that torch is linked to, LLVM's included."""
    try:
        found = ctypes.CDLL(torch._C.__file__).GOMP_parallel
    except (AttributeError, OSError, TypeError):
        return None
    found.argtypes, found.restype = [_TASK, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return found


def split_rows(rowptr: np.ndarray, parts: int) -> list[tuple[int, int]]:
    """Cut the rows into runs of about 1/parts of the edges, none much more than 1/parts of the rows."""
    rows, edges = len(rowptr) - 1, int(rowptr[-1])
    shares = np.array([edges * part // parts for part in range(1, parts)], dtype=rowptr.dtype)
    by_edges = np.searchsorted(rowptr, shares).tolist()
    longest = max(1, -(-rows // parts))
    pieces = []
    for first, last in itertools.pairwise([0, *by_edges, rows]):
        if last - first < 2 * longest:
            pieces.append((first, last))
        else:  # mostly empty rows, which cost a write each
            pieces += list(itertools.pairwise([*range(first, last, longest), last]))
    return [(first, last) for first, last in pieces if last > first]


def over_rows(kernel: Callable, rowptr: np.ndarray, *arguments, work: int) -> None:
    """Call `kernel(first_row, last_row, rowptr, *arguments)` on pieces that together cover every row.

    `work` is roughly the number of scalar operations in all; small jobs stay on the calling thread. Larger
    ones are cut into more pieces than there are threads, and each thread takes the next when it is free, so
    that one that is held up holds up nobody else.
    """
    threads = torch.get_num_threads() if work >= WORTH_A_THREAD else 1
    if threads == 1:
        if len(rowptr) > 1:
            kernel(0, len(rowptr) - 1, rowptr, *arguments)
        return
    pieces = iter(split_rows(rowptr, PIECES * threads))
    errors: list[BaseException] = []

    def take_turns(_=None):
        try:
            for first, last in pieces:  # advancing a list iterator is atomic
                kernel(first, last, rowptr, *arguments)
        except BaseException as error:  # a thread of torch's has nobody to raise it to
            errors.append(error)

    team = None if _forked else _openmp()
    if team is not None:
        team(_TASK(take_turns), None, threads, 0)
    else:
        others = [_pool(threads).submit(take_turns) for _ in range(threads - 1)]
        take_turns()
        for other in others:
            other.result()
    if errors:
        raise errors[0]
