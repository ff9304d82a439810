"""Many claims, on all cores: the slow ones first, one thread each."""

from __future__ import annotations

import io
import itertools
import os
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from contextlib import redirect_stdout
from pathlib import Path

from ..lab.workers import pool
from .claim import Claim, Verdict, check, claims, find, load_module

# What takes longest comes first, so that every core is busy to the end; what shares a trained model, or the
# run of a study, goes to one process together.
SLOW = (
    ("C2.8", "C2.10"), ("A4", "E1.12"), ("C1.3", "C1.4", "C1.5"), ("C1.2",), ("C1.6", "C1.7"), ("C2.7",),
    ("B6.1",), ("B1.1",), ("D3.2",), ("D4.1",), ("B5.4",), ("B5.3",), ("C2.9",), ("A1.5",), ("C3.6",),
)  # fmt: skip


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
    queue = [group for slow in SLOW if (group := [id for id in slow if id in chosen])]
    queue += [[id] for id in chosen if all(id not in slow for slow in SLOW)]
    workers = min(workers or os.cpu_count() or 1, max(1, len(queue) // 4))  # a process takes seconds to start
    found: dict[str, Verdict] = {}
    if workers == 1:
        for id in itertools.chain(*queue):
            found[id] = _checked(id, seeds, runs)
            tell(found[id])
    else:
        with pool(workers, 1, _begin, list(modules)) as started:
            for future in as_completed([started.submit(_checked_all, group, seeds, runs) for group in queue]):
                for verdict in future.result():
                    found[verdict.id] = verdict
                    tell(verdict)
    return [found[id] for id in chosen]


def _begin(modules: list[str | Path]) -> None:
    with redirect_stdout(io.StringIO()):  # what a file prints was printed where it was loaded first
        for module in modules:
            load_module(module)


def _checked_all(ids: list[str], seeds, runs) -> list[Verdict]:
    return [_checked(id, seeds, runs) for id in ids]


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
