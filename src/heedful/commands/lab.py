"""`heedful list`, `run`, `compare` and `report`: the lab from a terminal."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from .common import Number, UsageError, choose, print_json

Setting = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE"), tyro.conf.UseAppendAction]


@dataclass
class List:
    """Every study: what it asks, what it costs, what came out last."""

    runs: Path = Path("runs")
    """Where results are kept."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        from .. import lab
        from ..display import show_rows
        from ..lab.report import listing
        from ..lab.store import FILE

        store = lab.Store(self.runs) if (self.runs / FILE).exists() else None
        rows = listing(lab.studies(), store)
        if self.json:
            print_json(rows)
        else:
            show_rows([{key: row[key] for key in row if key != "source"} for row in rows], console)
        return 0


@dataclass
class Run:
    """Run a study over many seeds, beside its published figures. Interrupted, the same command goes on."""

    study: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="STUDY")]
    """Which, or all; see heedful list."""
    seeds: Number = None
    """How many; as many as the study says unless given."""
    first_seed: int = 0
    """The first of them: --seeds 2 --first-seed 14 takes 14 and 15."""
    profile: str = "full"
    """full: the published settings; quick: seconds to a minute, on data that needs no download."""
    set: Setting = ()
    """A setting of the study, as in --set net=Net1; as often as you like."""
    device: str = "cpu"
    """cpu or cuda."""
    backend: str = "auto"
    """loop, processes or stacked; auto tries them on the first trials."""
    workers: Number = None
    """Processes at once; as many as there are cores unless given."""
    engine: str = "here"
    """here, or ray: spread over a Ray cluster (RAY_ADDRESS, or one of this machine)."""
    again: bool = False
    """Run also what is in the store already."""
    runs: Path = Path("runs")
    """Where results are kept."""
    figure: Path | None = None
    """Also draw the figure to this file (.png, .svg or .pdf)."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        from .. import lab

        if self.first_seed < 0:
            raise UsageError(f"--first-seed is {self.first_seed}; it must be 0 or more")
        if self.figure is not None:
            drawable(self.figure)
        known = lab.studies()
        if self.study != "all":
            choose("study", self.study, known)
        elif self.set or self.figure:
            raise UsageError("run all: --set and --figure go with one study")
        results = [self._one(name, console) for name in (known if self.study == "all" else [self.study])]
        if self.json:
            found = [result.to_dict() for result in results]
            print_json(found if self.study == "all" else found[0])
        return 1 if any(result.failures for result in results) else 0

    @property
    def stopped(self) -> str:
        """What Ctrl-C leaves."""
        same = "the same command without --again" if self.again else "the same command"
        return f"stopped; what is finished is kept, {same} goes on from there"

    def _one(self, name: str, console: Console):
        from .. import lab

        choose("profile", self.profile, lab.PROFILES)
        result = lab.run(
            name,
            seeds=self._seeds(name),
            profile=self.profile,
            settings=settings(self.set),
            store=self.runs,
            backend=self.backend,
            workers=self.workers,
            device=self.device,
            engine=self.engine,
            again=self.again,
            progress=not self.json,
        )
        if not self.json:
            show(result, console)
        place = self.figure or self.runs / result.run.id / "figure.png"
        result.figure().savefig(place)
        if not self.json:
            where = f"figure: {place}    run: {result.run.id}\n"
            console.print(where, style="dim", highlight=False, soft_wrap=True)
        return result

    def _seeds(self, name: str):
        """How many, or which."""
        from .. import lab

        if not self.first_seed:
            return self.seeds
        count = lab.find(name).seeds(self.profile) if self.seeds is None else self.seeds
        if count < 1:
            raise UsageError(f"--seeds is {count}; it must be 1 or more")
        return range(self.first_seed, self.first_seed + count)


@dataclass
class Compare:
    """Two runs, paired by seed: difference, interval, verdict."""

    first: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """A run, the beginning of its name, or latest."""
    second: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="OTHER")]
    """The other one."""
    metric: str | None = None
    """Which number; the study's first unless given."""
    runs: Path = Path("runs")
    """Where results are kept."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        from ..display import show_rows
        from ..lab.compare import compare
        from ..lab.store import opened

        store = opened(self.runs)
        rows = compare(store, self.first, self.second, self.metric)
        if self.json:
            print_json(rows)
        else:
            show_rows(rows, console)
        return 0


@dataclass
class Report:
    """One HTML file of all results, figures inside."""

    output: Path | None = None
    """Where it goes; runs/latest/report.html unless given."""
    runs: Path = Path("runs")
    """Where results are kept."""
    json: bool = False
    """Print the scoreboard as JSON too."""

    def run(self, console: Console) -> int:
        from .. import lab
        from ..claims.page import FILE, section
        from ..display import show_rows
        from ..lab.report import newest, report, scoreboard
        from ..lab.store import opened

        # Where only claims were checked there is no store yet, but something to report.
        store = lab.Store(self.runs) if (self.runs / FILE).is_file() else opened(self.runs)
        path = report(store, self.output, sections=[section(self.runs)])
        rows = scoreboard(newest(store))
        if self.json:
            print_json({"path": str(path), "rows": rows})
        else:
            if rows:
                show_rows(rows, console)
            console.print(f"written to {path}", highlight=False, soft_wrap=True)
        return 0


def settings(given: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE pairs."""
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"--set takes NAME=VALUE, got {text!r}")
        found[name] = value
    return found


def drawable(path: Path) -> None:
    """Refuse a place for a figure before hours are spent on what it is to show."""
    from matplotlib.backend_bases import FigureCanvasBase

    kind = path.suffix.removeprefix(".").lower()
    if kind not in FigureCanvasBase.get_supported_filetypes():
        raise UsageError(f"--figure {path}: its name must end in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise UsageError(f"--figure {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"--figure {path}: it cannot be written there")


def show(result, console: Console) -> None:
    """The table as `print(result)` has it, coloured on a terminal."""
    from ..display import show_rows

    if not console.is_terminal:
        console.file.write(f"{result}\n")
        return
    show_rows(result.rows(), console, f"{result.study.name}: {result.study.question}")
    for line in result.notes():
        console.print(line, style="red" if line.startswith("failed") else "dim", highlight=False)
    for remark in result.remarks():
        console.print(f"\n{remark}", highlight=False, markup=False)
