"""Where results are kept: one SQLite file and a folder a run; several may write, any may be killed.

A *trial* is one seed of one variant. A *run* is what was asked for: a study, its settings, its seeds. Trials
are found by what they are (study, settings, code, seed), so a run that was interrupted, or one that asks for
more seeds, finds those that are done.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import shlex
import socket
import sqlite3
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .study import written

FILE, SCHEMA = "lab.sqlite", 1
_TABLES = """
CREATE TABLE IF NOT EXISTS run (
    id TEXT PRIMARY KEY, study TEXT NOT NULL, profile TEXT NOT NULL, settings TEXT NOT NULL,
    seeds TEXT NOT NULL, started REAL NOT NULL, finished REAL, about TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trial (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, seed INTEGER NOT NULL, study TEXT NOT NULL,
    settings TEXT NOT NULL, status TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL, born REAL,
    started REAL NOT NULL, finished REAL, results TEXT, error TEXT, folder TEXT NOT NULL,
    backend TEXT NOT NULL DEFAULT 'loop', UNIQUE (key, seed));
CREATE TABLE IF NOT EXISTS part (
    run TEXT NOT NULL REFERENCES run (id), key TEXT NOT NULL, place INTEGER NOT NULL, settings TEXT NOT NULL,
    PRIMARY KEY (run, key));
CREATE TABLE IF NOT EXISTS metric (
    trial INTEGER NOT NULL REFERENCES trial (id), name TEXT NOT NULL, step INTEGER NOT NULL, value REAL,
    PRIMARY KEY (trial, name, step)) WITHOUT ROWID;
"""


class StoreError(OSError):
    """The store cannot be opened, read or written; what was stored before is untouched."""


class Busy(Exception):
    """Another process, alive, is at work on this trial."""


@dataclass(frozen=True)
class Trial:
    """One seed of one variant: where it stands, and what came out."""

    id: int
    key: str
    seed: int
    study: str
    settings: dict[str, Any]
    status: str  # running, done, failed or interrupted
    results: dict[str, float]
    error: str | None
    folder: Path
    seconds: float | None
    backend: str


@dataclass(frozen=True)
class Run:
    """What was asked for, when, on what machine."""

    id: str
    study: str
    profile: str
    settings: dict[str, Any]
    seeds: list[int]
    started: float
    finished: float | None
    about: dict[str, Any]
    variants: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # key, settings

    @property
    def first_seed(self) -> int | None:
        """Where seeds follow each other the first one, else None."""
        return self.seeds[0] if self.seeds == list(range(self.seeds[0], self.seeds[-1] + 1)) else None

    @property
    def command(self) -> str:
        """What runs it again: in a terminal, or in Python if its seeds were chosen one by one."""
        if self.first_seed is None:
            chosen = f"profile={self.profile!r}, settings={self.settings!r}, seeds={self.seeds}"
            return f"lab.run({self.study!r}, {chosen})"
        words = ["heedful", "run", self.study, "--profile", self.profile, "--seeds", str(len(self.seeds))]
        words += ["--first-seed", str(self.first_seed)] if self.first_seed else []
        words += [
            part for name in self.settings for part in ("--set", f"{name}={written(self.settings[name])}")
        ]
        return shlex.join(words)


class Store:
    """Open the store in a folder, or make one.

    >>> import tempfile
    >>> Store(tempfile.mkdtemp()).runs()
    []
    """

    def __init__(self, folder: str | os.PathLike = "runs"):
        self.folder = Path(folder)
        self.file = self.folder / FILE
        with self._explained("open"):
            self.folder.mkdir(parents=True, exist_ok=True)
            # Every statement is its own transaction unless _writing() says otherwise.
            self._base = sqlite3.connect(self.file, timeout=60, isolation_level=None, check_same_thread=False)
            self._base.row_factory = sqlite3.Row
            found = self._base.execute("PRAGMA user_version").fetchone()[0]
            if found > SCHEMA:
                raise StoreError(
                    f"{self.file} was written by a newer heedful (version {found}, this one reads {SCHEMA}). "
                    f"Update heedful, or choose another folder."
                )
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute("PRAGMA synchronous = NORMAL")
            self._base.executescript(_TABLES)
            self._base.execute(f"PRAGMA user_version = {SCHEMA}")

    def close(self) -> None:
        self._base.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    # Runs

    def begin(self, study: str, profile: str, settings: Mapping, seeds: Sequence[int], variants) -> Run:
        """Write down what was asked for; `variants` are (key, settings) in their order."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        run = Run(
            f"{study}-{stamp}-{uuid.uuid4().hex[:4]}", study, profile, dict(settings), list(seeds),
            time.time(), None, about(), [(key, dict(chosen)) for key, chosen in variants],
        )  # fmt: skip
        with self._explained("write"):
            (self.folder / run.id).mkdir()
            described = {
                "study": study,
                "profile": profile,
                "settings": run.settings,
                "seeds": run.seeds,
                **run.about,
            }
            _replace(self.folder / run.id / "run.json", json.dumps(described, indent=1, default=str))
        with self._writing() as base:
            base.execute(
                "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, NULL, ?)",
                (
                    run.id,
                    study,
                    profile,
                    _text(run.settings),
                    _text(run.seeds),
                    run.started,
                    _text(run.about),
                ),
            )
            rows = [(run.id, key, place, _text(chosen)) for place, (key, chosen) in enumerate(run.variants)]
            base.executemany("INSERT INTO part VALUES (?, ?, ?, ?)", rows)
        return run

    def finish(self, run: Run) -> None:
        with self._writing() as base:
            base.execute("UPDATE run SET finished = ? WHERE id = ?", (time.time(), run.id))

    def runs(self, study: str | None = None) -> list[Run]:
        """Newest first."""
        where, given = ("WHERE study = ?", (study,)) if study else ("", ())
        rows = self._read(f"SELECT * FROM run {where} ORDER BY started DESC, rowid DESC", given)
        return [self._run(row) for row in rows]

    def run(self, name: str, study: str | None = None) -> Run:
        """By its name, the beginning of its name, or "latest"."""
        runs = self.runs(study)
        if name == "latest" and runs:
            return runs[0]
        found = [run for run in runs if run.id == name] or [run for run in runs if run.id.startswith(name)]
        if len(found) == 1 or (found and name == found[0].study):
            return found[0]
        if not runs:
            raise ValueError(_nothing(self.folder))
        if found:
            raise ValueError(f"{name!r} could be {', '.join(run.id for run in found[:5])}.")
        raise ValueError(f"{self.folder} holds no run {name!r}; the newest is {runs[0].id}.")

    def _run(self, row) -> Run:
        parts = self._read("SELECT key, settings FROM part WHERE run = ? ORDER BY place", (row["id"],))
        return Run(
            row["id"], row["study"], row["profile"], json.loads(row["settings"]), json.loads(row["seeds"]),
            row["started"], row["finished"], json.loads(row["about"]),
            [(part["key"], json.loads(part["settings"])) for part in parts],
        )  # fmt: skip

    # Trials

    def claim(self, run: Run, key: str, seed: int, *, backend: str = "loop", again: bool = False) -> Trial:
        """The trial, done already or ours to do; `Busy` if another living process has it."""
        settings = dict(run.variants)[key]
        ours = (socket.gethostname(), os.getpid(), _born(os.getpid()), time.time(), backend)
        with self._writing() as base:
            row = base.execute("SELECT * FROM trial WHERE key = ? AND seed = ?", (key, seed)).fetchone()
            trial = None if row is None else self._trial(row)
            if trial is not None and trial.status == "running" and row["pid"] != os.getpid():
                raise Busy(f"process {row['pid']} on {row['host']} is at work on it")
            if trial is not None and trial.status == "done" and not again:
                return trial
            if trial is not None and trial.status == "interrupted" and not again:
                # It keeps its folder, where a checkpoint may lie, and its curves up to there.
                base.execute(
                    "UPDATE trial SET status = 'running', host = ?, pid = ?, born = ?, started = ?, "
                    "backend = ? WHERE id = ?",
                    (*ours, trial.id),
                )
            else:
                if trial is not None:
                    base.execute("DELETE FROM metric WHERE trial = ?", (trial.id,))
                    base.execute("DELETE FROM trial WHERE id = ?", (trial.id,))
                base.execute(
                    "INSERT INTO trial "
                    "(host, pid, born, started, backend, key, seed, study, settings, status, folder) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', ?)",
                    (*ours, key, seed, run.study, _text(settings), f"{run.id}/{key}-{seed}"),
                )
            row = base.execute("SELECT * FROM trial WHERE key = ? AND seed = ?", (key, seed)).fetchone()
        return self._trial(row)

    def done(self, trial: Trial, results: Mapping[str, float], *, seconds: float | None = None) -> None:
        """Keep what came out. `seconds` where the time is not the clock's, as for seeds trained together."""
        finished = time.time()
        with self._writing() as base:
            base.execute(
                "UPDATE trial SET status = 'done', results = ?, finished = ?, "
                "started = CASE WHEN ? IS NULL THEN started ELSE ? END WHERE id = ?",
                (_text(_finite(results)), finished, seconds, finished - (seconds or 0), trial.id),
            )

    def failed(self, trial: Trial, error: str) -> None:
        with self._writing() as base:
            base.execute(
                "UPDATE trial SET status = 'failed', error = ?, finished = ? WHERE id = ?",
                (error, time.time(), trial.id),
            )

    def trials(self, run: Run | None = None) -> list[Trial]:
        """Those of a run in the order of its variants and seeds, or all."""
        if run is None:
            return [self._trial(row) for row in self._read("SELECT * FROM trial ORDER BY id")]
        found = []
        wanted = set(run.seeds)
        for key, _ in run.variants:
            rows = self._read("SELECT * FROM trial WHERE key = ? ORDER BY seed", (key,))
            found += [self._trial(row) for row in rows if row["seed"] in wanted]
        return found

    def log(self, trial: Trial, step: int, **metrics: float) -> None:
        """Numbers at a step; the last written for a step counts."""
        rows = [(trial.id, name, step, _number(value)) for name, value in metrics.items()]
        with self._writing() as base:
            base.executemany("INSERT OR REPLACE INTO metric VALUES (?, ?, ?, ?)", rows)

    def log_many(self, rows: Sequence[tuple[int, str, int, float]]) -> None:
        """(trial id, name, step, value) in one transaction."""
        with self._writing() as base:
            base.executemany(
                "INSERT OR REPLACE INTO metric VALUES (?, ?, ?, ?)",
                [(trial, name, step, _number(value)) for trial, name, step, value in rows],
            )

    def curves(self, trial: Trial) -> dict[str, list[tuple[int, float]]]:
        """Everything logged, by name, in the order of steps."""
        found: dict[str, list[tuple[int, float]]] = {}
        rows = self._read(
            "SELECT name, step, value FROM metric WHERE trial = ? ORDER BY name, step", (trial.id,)
        )
        for row in rows:
            value = math.nan if row["value"] is None else row["value"]
            found.setdefault(row["name"], []).append((row["step"], value))
        return found

    def reached(self, trials: Sequence[Trial]) -> dict[str, int]:
        """The last step of each curve, over some trials."""
        found: dict[str, int] = {}
        for trial in trials:
            for row in self._read(
                "SELECT name, MAX(step) AS step FROM metric WHERE trial = ? GROUP BY name", [trial.id]
            ):
                found[row["name"]] = max(row["step"], found.get(row["name"], 0))
        return found

    def sketch(self, trial: Trial, widths: Mapping[str, int]) -> dict[str, list[tuple[int, float]]]:
        """`curves` with a point for each so many steps, the first there is, and the last.

        Trials that logged the same steps have the same ones left, so that means over them stay means.
        """
        rows = self._read(
            "SELECT metric.name, MIN(step) AS step, metric.value FROM metric JOIN json_each(?) AS width "
            "ON width.key = metric.name WHERE trial = ? GROUP BY metric.name, step / width.value "
            "UNION SELECT name, MAX(step), value FROM metric WHERE trial = ? GROUP BY name ORDER BY 1, 2",
            (json.dumps(dict(widths)), trial.id, trial.id),
        )
        found: dict[str, list[tuple[int, float]]] = {}
        for row in rows:
            value = math.nan if row["value"] is None else row["value"]
            found.setdefault(row["name"], []).append((row["step"], value))
        return found

    def _trial(self, row) -> Trial:
        status = row["status"]
        if status == "running" and not _alive(row["host"], row["pid"], row["born"]):
            status = "interrupted"
        seconds = row["finished"] - row["started"] if row["finished"] else None
        return Trial(
            row["id"], row["key"], row["seed"], row["study"], json.loads(row["settings"]), status,
            json.loads(row["results"]) if row["results"] else {}, row["error"], self.folder / row["folder"],
            seconds, row["backend"],
        )  # fmt: skip

    # What SQLite needs

    def _read(self, query: str, given: Sequence = ()) -> list[sqlite3.Row]:
        with self._explained("read"):
            return self._base.execute(query, given).fetchall()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """All or nothing; waits its turn behind other writers."""
        with self._explained("write"):
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield self._base
                self._base.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back already
                    self._base.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except sqlite3.DatabaseError as error:
            hints = {
                "disk is full": "Free some space and run the same command again; what is stored is kept.",
                "readonly": "The folder or file cannot be written; choose another with --runs.",
                "not a database": "It is not a store; move it away, or choose another folder with --runs.",
                "malformed": "The file is damaged; move it away, or restore it from a copy.",
                "locked": "Another process has held it for a minute; is one stuck?",
                "unable to open": "Is the folder there, and yours to write?",
            }
            hint = next((hint for words, hint in hints.items() if words in str(error)), "")
            raise StoreError(f"cannot {doing} {self.file}: {error}. {hint}".rstrip()) from error
        except OSError as error:
            raise StoreError(f"cannot {doing} {error.filename or self.folder}: {error.strerror}.") from error


def opened(folder: str | os.PathLike) -> Store:
    """The store of a folder that has one: who only reads makes none, least of all by a misspelt name."""
    if not (Path(folder) / FILE).is_file():
        raise ValueError(_nothing(folder))
    return Store(folder)


def _nothing(folder: str | os.PathLike) -> str:
    return f"{folder} holds no runs yet; make one with: heedful run padding --profile quick"


def about() -> dict[str, Any]:
    """Code, packages and machine, as a run keeps them."""
    import numpy
    import torch

    from .. import __version__

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    return {
        "heedful": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores" + (f", {gpu}" if gpu else ""),
        "system": platform.platform(),
        "host": socket.gethostname(),
        "command": " ".join([_program(), *map(str, sys.argv[1:])]),
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _program() -> str:
    name = Path(sys.argv[0]).name
    return "heedful" if name == "__main__.py" else name


def _born(pid: int) -> float | None:
    """When a process was started, in ticks since boot: pids are given out again. None for one that ended and
    that nobody has asked about yet.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state == "Z" else float(rest[18])


def _alive(host: str, pid: int, born: float | None) -> bool:
    if host != socket.gethostname():
        return True  # nobody here can tell; another machine's trial is its own
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return born is None or _born(pid) == born


def _text(thing) -> str:
    return json.dumps(thing, default=str)


def _number(value) -> float | None:
    value = float(value)
    return value if math.isfinite(value) else None


def _finite(results: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _number(value) for name, value in results.items()}


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:6]}")
    beside.write_text(text)
    os.replace(beside, path)
