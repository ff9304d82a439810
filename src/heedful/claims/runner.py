"""Many claims, on all cores: the slow ones first, one thread each."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import torch

from .claim import Claim, Verdict, check, claims, find, load_module

# Claims that train, slowest first; a queue that ends with the short ones keeps every core busy.
SLOW = (
    "C2.8",
    "C2.10",
    "C2.7",
    "A4",
    "E1.12",
    "D4.1",
    "B6.1",
    "C3.6",
    "A1.5",
    "E1.8",
    "C1.2",
    "C1.6",
    "B1.1",
    "D3.2",
)


def check_all(
    ids: Sequence[str] | None = None,
    *,
    seeds: int | Sequence[int] = 3,
    runs: str | Path = "runs",
    workers: int | None = None,
    modules: Sequence[str | Path] = (),
    tell: Callable[[Verdict], None] = lambda verdict: None,
) -> list[Verdict]:
    """Check claims (all unless given) in as many processes as there are cores; verdicts in the order of ids.

    A claim that raises is told as "not measured", with its error; `tell` hears each verdict as it comes.
    """
    for module in modules:
        load_module(module)
    chosen = list(claims()) if ids is None else [find(id).id for id in ids]
    queue = sorted(chosen, key=lambda id: SLOW.index(id) if id in SLOW else len(SLOW))
    workers = min(workers or os.cpu_count() or 1, max(1, len(queue) // 4))  # a process takes seconds to start
    found: dict[str, Verdict] = {}
    if workers == 1:
        for id in queue:
            found[id] = _checked(id, seeds, runs)
            tell(found[id])
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(list(modules),)) as pool:
            for future in as_completed([pool.submit(_checked, id, seeds, runs) for id in queue]):
                verdict = future.result()
                found[verdict.id] = verdict
                tell(verdict)
    return [found[id] for id in chosen]


def _begin(modules: list[str | Path]) -> None:
    torch.set_num_threads(1)
    for module in modules:
        load_module(module)


def _checked(id: str, seeds, runs) -> Verdict:
    start = time.perf_counter()
    entry: Claim = find(id)
    try:
        return check(entry, seeds=seeds, runs=runs)
    except Exception:
        from .evidence import Evidence

        last = traceback.format_exc().strip().splitlines()[-1]
        told = Evidence("error", "note", "shown", None, "", None, measured=last)
        about = (entry.id, entry.document, entry.statement, entry.stated)
        return Verdict(*about, "not measured", [told], seconds=time.perf_counter() - start)
