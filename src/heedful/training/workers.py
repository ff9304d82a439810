"""Seeds spread over processes: every core busy, each seed trained as if it were alone in the world.

Workers are spawned, never forked: OpenMP does not survive a fork. A script that starts them is not run again
in them, unless the experiment is defined in it.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from typing import Any

import torch

from .experiment import Experiment, Outcome
from .stacked import run_stacked


class Unsendable(ValueError):
    """Why an experiment cannot be sent to another process."""


def packed(experiment: Experiment, store: Callable[[int], Any] | None = None) -> bytes:
    """The experiment as it is sent; an `Unsendable` error says what cannot be."""
    try:
        return pickle.dumps((experiment, store))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise Unsendable(
            f"the experiment cannot be sent to another process ({error}); its functions must be defined at "
            f"the top of a module, not as lambdas or inside others (functools.partial is fine)."
        ) from error


def defined_in_script(content: bytes) -> bool:
    """Whether workers must run the user's script again to find the experiment's functions."""
    return b"__main__" in content


def run_processes(
    experiment: Experiment,
    seeds: list[int],
    *,
    workers: int,
    width: int = 1,
    done: Callable[[Outcome], object] | None = None,
    store: Callable[[int], Any] | None = None,
) -> list[Outcome]:
    """The outcomes, in the order of the seeds; each worker trains `width` seeds at a time, stacked if
    several.
    """
    content = packed(experiment, store)
    script = defined_in_script(content)
    if script and not hasattr(sys.modules["__main__"], "__file__"):
        raise Unsendable(
            "the experiment is defined in a notebook or shell, which workers cannot read; put it in a file."
        )
    groups = [seeds[start : start + width] for start in range(0, len(seeds), width)]
    workers = min(workers, len(groups))
    threads = max(1, torch.get_num_threads() // workers)
    outcomes: dict[int, Outcome] = {}
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _prepare, (content, threads))
    try:
        with _script_hidden(not script):
            waiting: dict[Future, list[int]] = {pool.submit(_train, group): group for group in groups}
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                group = waiting.pop(future)
                for outcome in _received(future, group, waiting, script):
                    outcomes[outcome.seed] = outcome
                    if done is not None:
                        done(outcome)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return [outcomes[seed] for seed in seeds]


def _received(
    future: Future, group: list[int], waiting: dict[Future, list[int]], script: bool
) -> list[Outcome]:
    try:
        found, error = future.result()
    except BrokenProcessPool as broken:
        lost = sorted({*group, *(seed for rest in waiting.values() for seed in rest)})
        guard = ' Does the script train under `if __name__ == "__main__":`?' if script else ""
        raise RuntimeError(
            f"a worker process died (killed, or out of memory); seeds {_listed(lost)} are not done.{guard}"
        ) from broken
    if error is not None:
        raise RuntimeError(
            f"seed{'s' * (len(group) > 1)} {_listed(group)} failed in a worker process:\n{error}"
        )
    return pickle.loads(found)


def _listed(seeds: list[int]) -> str:
    return ", ".join(map(str, seeds[:8])) + (" …" if len(seeds) > 8 else "")


_CONTENT = b""


def settle(threads: int) -> None:
    """In a new worker: so many threads, and no life after the process that started it.

    A pool whose owner was killed waits for work for ever, for every worker holds both ends of its queue.
    """
    torch.set_num_threads(threads)
    owner = parent_process()
    if owner is not None:
        threading.Thread(target=_leave_with, args=(owner.sentinel,), daemon=True).start()


def _leave_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


def _prepare(content: bytes, threads: int) -> None:
    """In a new worker; what may go wrong is left to the first task, which can report it."""
    global _CONTENT
    _CONTENT = content
    settle(threads)


def _train(group: list[int]) -> tuple[bytes, str | None]:
    """In a worker: (outcomes, None) or (nothing, what went wrong). Bytes, for torch would send tensors by
    handles that die with the worker.
    """
    try:
        experiment, store = pickle.loads(_CONTENT)
        if len(group) > 1:
            return pickle.dumps(run_stacked(experiment, group, store=store)), None
        return pickle.dumps(
            [experiment.run(group[0], store=None if store is None else store(group[0]))]
        ), None
    except Exception:
        return b"", traceback.format_exc()


@contextmanager
def _script_hidden(hide: bool) -> Iterator[None]:
    """Spawning runs the main script again in the worker, which has no use for it and may train, too."""
    script = sys.modules["__main__"]
    if hide:
        sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
