"""Processes that end with a Ctrl-C without a word: what is to be said, the one that started them says."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager

from ..training.workers import settle


@contextmanager
def pool(workers: int, threads: int, begin: Callable[..., object] | None = None, *given) -> Iterator:
    """Workers of so many threads each, none of which starts before it has something to do; each calls
    `begin(*given)` first. What waits when the block is left is not begun.
    """
    context = multiprocessing.get_context("spawn")
    found = _Pool(workers, context, initializer=_begin, initargs=(threads, begin, given))
    try:
        yield found
    finally:
        found.shutdown(cancel_futures=True)


class _Pool(ProcessPoolExecutor):
    def submit(self, *given, **options) -> Future:
        """Starts a worker where one is missing; it inherits that Ctrl-C waits until it has settled."""
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(*given, **options)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(*given, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(threads: int, begin: Callable[..., object] | None, given: tuple) -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not if Ctrl-C is to be ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends it where Python would print a traceback
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    settle(threads)
    if begin is not None:
        begin(*given)
