"""Work that a page asks for, each in a process of its own: it outlives the page and the server.

A job is `python -m heedful run …` (or `claims …`) and three files in runs/studio: what was asked (.json),
what it said (.log), its figure (.png). The figure's name is in the command, which the store keeps with the
run: so a run is found by its job, and a job by its run.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..lab.store import Run, Store, _alive, _born
from ..lab.study import written

MOST = 4  # jobs at once: more would only wait for each other
NAME = re.compile(r"job-[0-9a-f]{12}")


@dataclass(frozen=True)
class Job:
    """What was started: which study (or claims), with what arguments, as which process, since when."""

    id: str
    kind: str  # run or claims
    subject: str
    arguments: list[str]
    host: str
    pid: int
    born: float | None
    started: float

    @property
    def alive(self) -> bool:
        # A process that ended before it was looked at has no time of birth.
        return self.born is not None and _alive(self.host, self.pid, self.born)


class Jobs:
    """Start, find and stop jobs of a store."""

    def __init__(self, store: Store):
        self.store = store
        self.folder = store.folder / "studio"
        self._children: list[subprocess.Popen] = []

    def run(
        self,
        study: str,
        profile: str,
        settings: Mapping[str, Any],
        seeds: int | None = None,
        *,
        first_seed: int = 0,
        device: str = "cpu",
        again: bool = False,
    ) -> Job:
        """Start a run; what is in the store already is not run again unless `again`."""
        name = _name()
        arguments = ["run", study, "--profile", profile, "--device", device]
        arguments += ["--again"] if again else []
        arguments += ["--seeds", str(seeds)] if seeds is not None else []
        arguments += ["--first-seed", str(first_seed)] if first_seed else []
        arguments += [
            part for pair in settings.items() for part in ("--set", f"{pair[0]}={written(pair[1])}")
        ]
        arguments += [
            "--runs",
            str(self.store.folder),
            "--figure",
            str(self.folder / f"{name}.png"),
            "--json",
        ]
        return self._start(name, "run", study, arguments)

    def resume(self, run: Run) -> Job:
        """The same command again: it goes on where the run stopped."""
        first = run.first_seed
        if first is None:
            raise ValueError(f"{run.id} has seeds of its own choice; resume it with lab.run(…, seeds=[…]).")
        if self.alive(run):
            raise ValueError(f"{run.id} is at work already.")
        device = "cuda" if "--device cuda" in run.about.get("command", "") else "cpu"
        count = len(run.seeds)
        return self.run(run.study, run.profile, run.settings, count, first_seed=first, device=device)

    def claims(self, ids: Sequence[str]) -> Job:
        """Measure claims; one job at a time, for their verdicts go to one file."""
        if any(job.kind == "claims" and job.alive for job in self.all()):
            raise ValueError("Claims are being measured already; wait until that is done.")
        arguments = ["claims", *ids, "--runs", str(self.store.folder), "--json"]
        return self._start(_name(), "claims", " ".join(ids), arguments)

    def stop(self, run: Run) -> None:
        """End a run's process and its workers; what is finished is kept, the rest can be resumed."""
        job = self.of(run)
        if job is None:
            raise ValueError(
                f"{run.id} was not started from this page; stop it where it was started (Ctrl-C)."
            )
        if job.host != socket.gethostname():
            raise ValueError(f"{run.id} runs on {job.host}; stop it there.")
        if not job.alive:
            raise ValueError(f"{run.id} is not running any more.")
        os.killpg(job.pid, signal.SIGTERM)  # it began a session: the group is its own

    def all(self) -> list[Job]:
        """Newest first."""
        self._children = [child for child in self._children if child.poll() is None]
        found = [self._read(path) for path in self.folder.glob("job-*.json")]
        return sorted((job for job in found if job), key=lambda job: -job.started)

    def find(self, name: str) -> Job | None:
        if not NAME.fullmatch(name):
            return None
        self._children = [child for child in self._children if child.poll() is None]
        return self._read(self.folder / f"{name}.json")

    def of(self, run: Run) -> Job | None:
        """The job that began a run; None where a terminal did."""
        found = NAME.search(run.about.get("command", ""))
        return self.find(found[0]) if found else None

    def run_of(self, job: Job) -> Run | None:
        """The run that a job began; None while it has not."""
        runs = self.store.runs(job.subject) if job.kind == "run" else []
        return next((run for run in runs if job.id in run.about.get("command", "")), None)

    def alive(self, run: Run) -> bool:
        job = self.of(run)
        return job is not None and job.alive

    def said(self, job: Job, most: int = 4000) -> str:
        """The end of what a job wrote to its error stream."""
        try:
            return (self.folder / f"{job.id}.log").read_text(errors="replace")[-most:].strip()
        except OSError:
            return ""

    def _start(self, name: str, kind: str, subject: str, arguments: list[str]) -> Job:
        if sum(job.alive for job in self.all()) >= MOST:
            raise ValueError(f"{MOST} jobs are at work already; wait for one, or stop one.")
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{name}.log").open("wb") as log:
            child = subprocess.Popen(
                [sys.executable, "-m", "heedful", *arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                start_new_session=True,  # the server's Ctrl-C is not for it
            )  # fmt: skip
        self._children.append(child)
        born = _born(child.pid)
        job = Job(name, kind, subject, arguments, socket.gethostname(), child.pid, born, time.time())
        beside = self.folder / f".{name}.part"
        beside.write_text(json.dumps(asdict(job)))
        os.replace(beside, self.folder / f"{name}.json")
        return job

    def _read(self, path: Path) -> Job | None:
        try:
            return Job(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            return None


def _name() -> str:
    return f"job-{uuid.uuid4().hex[:12]}"
