"""What a GPU's strategies must compile before they can be timed, compiled by all cores at once.

Triton compiles for every kind of problem, FlexAttention for every shape, seconds each. What one process has
compiled the others find on disk: FlexAttention then takes half a second, not six.
"""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress

import torch

from .calibrate import Example
from .strategies import STRATEGIES

# The others are made of torch's own operations.
COMPILED = ("flex", "sparse", "factored", "scan", "tiled", "banded")


def compile_ahead(
    examples: Sequence[Callable[[], Example]],
    names: Callable[[Example], Iterable[str]],
    *,
    workers: int | None = None,
    seconds: float = math.inf,
) -> None:
    """Run the strategies `names(example)` on each example once, in processes of their own, for `seconds`.

    Both are pickled: examples are `functools.partial`s, `names` a function of a module. What goes wrong here
    goes wrong again, and is told, where it is timed.
    """
    workers = workers or max(1, (os.cpu_count() or 2) - 2)
    spawn = multiprocessing.get_context("spawn")  # CUDA does not survive a fork
    pool = ProcessPoolExecutor(min(workers, len(examples) or 1), mp_context=spawn, initializer=_alone)
    try:
        tasks = [pool.submit(_touch, make, names) for make in examples]
        wait(tasks, None if seconds == math.inf else seconds)
    except BrokenProcessPool:
        pass
    finally:
        pool.shutdown(cancel_futures=True)


def _alone() -> None:
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes of each process
    torch.set_num_threads(1)


def _touch(make: Callable[[], Example], names: Callable[[Example], Iterable[str]]) -> None:
    example = make()
    for name in names(example):
        if name in COMPILED:
            with suppress(torch.OutOfMemoryError):  # there are many at once
                example.run(STRATEGIES[name])()
            torch.cuda.empty_cache()
