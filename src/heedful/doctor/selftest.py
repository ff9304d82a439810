"""How good the doctor is: programs with one planted bug each, healthy ones beside them, and the score.

Programs are run under one neutral name; what is planted in them stands in a list the doctor does not see.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import json
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .source import apply

_HEAVY = ("pytorch_lightning", "sklearn", "transformers")  # seconds to import


@dataclass
class Trial:
    program: str
    planted: str | None  # None: healthy
    found: list[str]
    notes: list[str] = field(default_factory=list)
    failed: str = ""
    seconds: float = 0.0
    measured: dict[str, float] = field(default_factory=dict)
    patch: str = ""  # of what was planted, as the doctor wrote it
    proof: str = ""  # by experiments on copies
    healed: bool | None = None  # whether the patched program has it no more; None: not asked, or no patch

    @property
    def right(self) -> bool:
        return (self.planted in self.found) if self.planted else not self.found


@dataclass
class Score:
    """Precision and recall over all programs, and by finding."""

    trials: list[Trial]
    skipped: dict[str, str] = field(default_factory=dict)  # programs, and the library they need

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
                    "patched": sum(bool(t.patch) for t in planted),
                    "healed": sum(bool(t.healed) for t in planted),
                    "experiment": sum(bool(t.proof) for t in planted),
                }
            )
        return rows

    def summary(self) -> str:
        sick = [trial for trial in self.trials if trial.planted]
        said = (
            f"{len(sick)} planted bugs: recall {self.recall:.3f}, precision {self.precision:.3f}; "
            f"{self.healthy} healthy programs: {len(self.false_alarms)} with a false alarm"
        )
        if any(trial.healed is not None for trial in sick):
            patched = sum(bool(trial.patch) for trial in sick)
            proved = sum(bool(trial.healed or trial.proof) for trial in sick)
            said += f"; {patched} patched, {sum(bool(t.healed) for t in sick)} healed by it, {proved} proved"
        if self.skipped:
            said += f"; {len(self.skipped)} skipped, without {', '.join(sorted(set(self.skipped.values())))}"
        return said

    def to_dict(self) -> dict[str, Any]:
        return {
            "recall": self.recall,
            "precision": self.precision,
            "healthy": self.healthy,
            "false alarms": len(self.false_alarms),
            "skipped": self.skipped,
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


def self_test(folder=None, *, only: Sequence[str] = (), seed: int = 0, prove: bool = False) -> Score:
    """Run every program under the doctor in a forked process; with `prove`, those with a patch once more.

    Programs that import what is not installed are left out, and named.
    """
    place = corpus(folder)
    planted = json.loads((place / "planted.json").read_text(encoding="utf-8"))
    programs = sorted(p for p in place.rglob("*.py"))
    chosen = [p for p in programs if not only or any(word in p.stem for word in only)]
    names = {p: p.relative_to(place).as_posix() for p in chosen}
    unknown = [names[p] for p in chosen if names[p] not in planted]
    if unknown:
        raise ValueError(f"planted.json does not say what is wrong with {', '.join(unknown)}")
    texts = {p: p.read_text(encoding="utf-8") for p in chosen}
    skipped = {names[p]: lacking for p in chosen if (lacking := _lacking(texts[p]))}
    chosen = [p for p in chosen if names[p] not in skipped]
    results = run_all([texts[p] for p in chosen], seed)
    trials = []
    for p, result in zip(chosen, results, strict=True):
        details = result.pop("details").get(planted[names[p]], {})
        trials.append(Trial(names[p], planted[names[p]], **result, **details))
    if prove:
        patched = [trial for trial in trials if trial.patch]
        again = [apply(texts[place / trial.program], trial.patch) for trial in patched]
        for trial, result in zip(patched, run_all(again, seed), strict=True):
            trial.healed = trial.planted not in result["found"] and (
                not result["failed"] or bool(trial.failed)
            )
    return Score(trials, skipped)


def _imports(text: str) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.parse(text).body if isinstance(node, (ast.Import, ast.ImportFrom))]


def _lacking(text: str) -> str:
    """The first library of those a program imports that is not installed."""
    for node in _imports(text):
        name = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            return name.partition(".")[0]
    return ""


def run_all(programs: Sequence[str], seed: int = 0, workers: int = 1) -> list[dict[str, Any]]:
    """Each program in a fork of a process that has loaded what they import, so that none pays for it."""
    import torch

    # Loaded here, not in every fork: the first optimizer of a process loads torch._dynamo, a second's work.
    import torch._dynamo
    import torch.distributed.optim

    from . import rules  # noqa: F401

    for line in sorted({ast.unparse(node) for text in programs for node in _imports(text)}):
        if line.split()[1].partition(".")[0] in _HEAVY:
            exec(line, {})
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
            process = context.Process(target=_one, args=(program, seed, sender))
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
                        "details": {},
                    }
                process.join()
                running.remove(entry)
    gc.unfreeze()
    return results


def _one(text: str, seed: int, sender) -> None:
    from ..training.randomness import seed_all
    from .script import watched

    start = time.perf_counter()
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.chdir("/tmp" if os.path.isdir("/tmp") else os.getcwd())
    seed_all(seed)
    try:
        report = watched("train.py", text, [], None, "normal", show=False)
        failed = report.get("failed", "") or report.get("raised", "")
    except BaseException as error:
        report, failed = {}, f"{type(error).__name__}: {error}"
    findings = report.get("findings", [])
    sender.send(
        {
            "found": [entry["name"] for entry in findings if entry["severity"] != "note"],
            "notes": [f"{e['name']}: {e['what']}" for e in findings] + report.get("notes", []),
            "failed": failed,
            "seconds": time.perf_counter() - start,
            "measured": report.get("measured", {}) | {e["name"]: e["measured"] for e in findings},
            "details": {e["name"]: {"patch": e["patch"], "proof": e["proof"]} for e in findings},
        }
    )
    sender.close()
    os._exit(0)
