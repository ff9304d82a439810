"""How good the doctor is: programs with one planted bug each, healthy ones beside them, and the score.

Programs are run under one neutral name; what is planted in them stands in a list the doctor does not see.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Trial:
    program: str
    planted: str | None  # None: healthy
    found: list[str]
    notes: list[str] = field(default_factory=list)
    failed: str = ""
    seconds: float = 0.0
    measured: dict[str, float] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        return (self.planted in self.found) if self.planted else not self.found


@dataclass
class Score:
    """Precision and recall over all programs, and by finding."""

    trials: list[Trial]

    @property
    def recall(self) -> float:
        sick = [trial for trial in self.trials if trial.planted]
        return sum(trial.planted in trial.found for trial in sick) / max(1, len(sick))

    @property
    def precision(self) -> float:
        alarms = sum(len(trial.found) for trial in self.trials)
        return sum(trial.planted in trial.found for trial in self.trials if trial.planted) / max(1, alarms)

    @property
    def false_alarms(self) -> list[Trial]:
        return [trial for trial in self.trials if not trial.planted and trial.found]

    @property
    def healthy(self) -> int:
        return sum(not trial.planted for trial in self.trials)

    def rows(self) -> list[dict[str, Any]]:
        names = sorted(
            {t.planted for t in self.trials if t.planted} | {n for t in self.trials for n in t.found}
        )
        rows = []
        for name in names:
            planted = [t for t in self.trials if t.planted == name]
            hits = sum(name in t.found for t in planted)
            alarms = sum(name in t.found for t in self.trials)
            false = sum(name in t.found for t in self.trials if not t.planted)
            rows.append(
                {
                    "finding": name,
                    "planted": len(planted),
                    "found": hits,
                    "recall": hits / len(planted) if planted else None,
                    "precision": hits / alarms if alarms else None,
                    "false alarms": false,
                    "rate": false / max(1, self.healthy),
                }
            )
        return rows

    def summary(self) -> str:
        sick = len(self.trials) - self.healthy
        return (
            f"{sick} planted bugs: recall {self.recall:.3f}, precision {self.precision:.3f}; "
            f"{self.healthy} healthy programs: {len(self.false_alarms)} with a false alarm"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "recall": self.recall,
            "precision": self.precision,
            "healthy": self.healthy,
            "false alarms": len(self.false_alarms),
            "findings": self.rows(),
            "programs": [vars(trial) for trial in self.trials],
        }


def corpus(folder: str | os.PathLike | None = None) -> Path:
    """Where the programs are: beside the source, or where told."""
    place = (
        Path(folder)
        if folder is not None
        else Path(__file__).resolve().parents[3] / "tests" / "doctor" / "corpus"
    )
    if not (place / "planted.json").is_file():
        raise ValueError(
            f"there is no corpus at {str(place)!r}; it comes with the source, under tests/doctor/corpus"
        )
    return place


def self_test(
    folder=None, *, only: Sequence[str] = (), part: tuple[int, int] = (0, 1), seed: int = 0, workers: int = 1
) -> Score:
    """Run every program under the doctor in a forked process; one part of several where told."""
    place = corpus(folder)
    planted = json.loads((place / "planted.json").read_text(encoding="utf-8"))
    programs = sorted(p for p in place.rglob("*.py"))
    chosen = [p for p in programs if not only or any(word in p.stem for word in only)]
    chosen = [p for k, p in enumerate(chosen) if k % part[1] == part[0]]
    names = {p: str(p.relative_to(place)) for p in chosen}
    unknown = [names[p] for p in chosen if names[p] not in planted]
    if unknown:
        raise ValueError(f"planted.json does not say what is wrong with {', '.join(unknown)}")
    results = run_all(chosen, seed, workers)
    return Score(
        [
            Trial(
                names[p], planted[names[p]], r["found"], r["notes"], r["failed"], r["seconds"], r["measured"]
            )
            for p, r in zip(chosen, results, strict=True)
        ]
    )


def run_all(programs: Sequence[Path], seed: int = 0, workers: int = 1) -> list[dict[str, Any]]:
    """Each program in a fork of a process that has loaded torch, so that none pays for it again."""
    import torch

    # Loaded here, not in every fork: the first optimizer of a process loads torch._dynamo, a second's work.
    import torch._dynamo
    import torch.distributed.optim

    from . import rules  # noqa: F401

    torch.set_num_threads(1)
    gc.freeze()

    context = multiprocessing.get_context("fork")
    waiting = list(enumerate(programs))
    results: list[dict[str, Any]] = [{} for _ in programs]
    running: list[tuple[int, Any, Any]] = []
    while waiting or running:
        while waiting and len(running) < workers:
            place, program = waiting.pop(0)
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_one, args=(str(program), seed, sender))
            process.start()
            sender.close()
            running.append((place, process, receiver))
        for entry in list(running):
            place, process, receiver = entry
            if receiver.poll(0.02):
                try:
                    results[place] = receiver.recv()
                except EOFError:
                    results[place] = {
                        "found": [],
                        "notes": [],
                        "failed": "its process died",
                        "seconds": 0.0,
                        "measured": {},
                    }
                process.join()
                running.remove(entry)
    gc.unfreeze()
    return results


def _one(program: str, seed: int, sender) -> None:
    from ..training.randomness import seed_all
    from .script import watched

    start = time.perf_counter()
    text = Path(program).read_text(encoding="utf-8")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.chdir("/tmp" if os.path.isdir("/tmp") else os.getcwd())
    seed_all(seed)
    try:
        found = watched("train.py", text, [], None, "normal", show=False)
        failed = found.get("failed", "") or found.get("raised", "")
        names = [entry["name"] for entry in found.get("findings", []) if entry["severity"] != "note"]
        notes = [f"{e['name']}: {e['what']}" for e in found.get("findings", [])] + found.get("notes", [])
        measured = found.get("measured", {})
        measured |= {entry["name"]: entry["measured"] for entry in found.get("findings", [])}
    except BaseException as error:
        failed, names, notes, measured = f"{type(error).__name__}: {error}", [], [], {}
    sender.send(
        {
            "found": names,
            "notes": notes,
            "failed": failed,
            "seconds": time.perf_counter() - start,
            "measured": measured,
        }
    )
    sender.close()
    os._exit(0)
