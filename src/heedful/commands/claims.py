"""`heedful claims`: the textbook, executed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import tyro
from rich.console import Console

from .common import Number, UsageError, plain, print_json

Modules = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE"), tyro.conf.UseAppendAction]


@dataclass
class Claims:
    """Measure what five courses state, and say whether it holds; every claim, or those named."""

    ids: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which, as C2.6; all unless given."""
    explain: bool = False
    """Tell all: what is stated, what was measured, the figure, the corrected statement, the code."""
    document: str | None = None
    """Only claims of one document: A, B, C, D, E, or a part of its name."""
    seeds: int = 3
    """How many seeds each is measured at."""
    module: Modules = ()
    """A Python file with claims of your own, which are checked instead of ours unless you name some."""
    runs: Path = Path("runs")
    """Where results of studies lie, and where verdicts and figures are kept."""
    workers: Number = None
    """Processes at once; as many as there are cores unless given."""
    docs: Path | None = None
    """Also write claims.md and map.md, the pages of the documentation, to this folder."""
    json: bool = False
    """Print JSON: id, document, statement, stated, verdict, evidence, corrected of each."""

    stopped: ClassVar[str] = "stopped; verdicts are kept once all are there"

    def run(self, console: Console) -> int:
        from .. import claims
        from ..claims.claim import FIELDS

        if self.seeds < 1:
            raise UsageError(f"--seeds is {self.seeds}; it must be 1 or more")
        with redirect_stdout(sys.stderr if self.json else sys.stdout):  # what the files print is no JSON
            own = [id for module in self.module for id in claims.load_module(module)]
        known = claims.claims()
        named = list(dict.fromkeys(claims.find(id).id for id in self.ids))
        chosen = named or own or list(known)
        if self.document is not None:
            within = claims.claims(self.document)
            chosen = [id for id in chosen if id in within]
            if not chosen:
                raise UsageError(f"no claim named is of document {self.document}")
        if self.docs is not None and chosen != list(known):
            raise UsageError(
                "--docs writes pages of all claims; it goes without ids, --document and --module"
            )
        with _progress(len(chosen), console, quiet=self.json) as tell:
            verdicts = claims.check_all(
                chosen, seeds=self.seeds, runs=self.runs, workers=self.workers, modules=self.module, tell=tell
            )
        keep(verdicts, self.runs)
        if self.docs is not None:
            from ..claims.page import write_pages

            write_pages(verdicts, self.docs)
        if self.json:
            print_json([{key: verdict.to_dict()[key] for key in FIELDS} for verdict in verdicts])
        elif self.explain:
            for verdict in verdicts:
                self._explain(verdict, known, console)
        else:
            self._scoreboard(verdicts, console)
        return 1 if any(verdict.verdict == "not measured" for verdict in verdicts) else 0

    def _scoreboard(self, verdicts, console: Console) -> None:
        from ..claims.page import summary
        from ..display import show_rows

        room = max(40, console.width // 2 - 16) if console.is_terminal else 90
        rows = [
            {
                "claim": verdict.id,
                "verdict": verdict.verdict,
                "states": _clipped(verdict.statement, room),
                "evidence": _clipped(verdict.line, room),
            }
            for verdict in verdicts
        ]
        show_rows(rows, console)
        console.print(summary(verdicts), style="bold", highlight=False, soft_wrap=True)

    def _explain(self, verdict, known, console: Console) -> None:
        console.print(str(verdict), highlight=False, markup=False, soft_wrap=True)
        figure = verdict.figure()
        if figure is not None:
            place = self.runs / "claims" / f"{verdict.id}.png"
            figure.savefig(place)
            console.print(f"figure: {place}", style="dim", highlight=False, soft_wrap=True)
        console.print(
            f"\nmeasured by\n{known[verdict.id].code}", highlight=False, markup=False, soft_wrap=True
        )


def keep(verdicts, runs: Path) -> Path:
    """The verdicts beside those kept before, by id, for the report."""
    from ..claims.page import FILE

    path = runs / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    kept = {entry["id"]: entry for entry in before} | {v.id: v.to_dict() for v in verdicts}
    path.write_text(json.dumps(plain(list(kept.values())), ensure_ascii=False), encoding="utf-8")
    return path


def _clipped(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 1].rstrip()}…"


@contextmanager
def _progress(total: int, console: Console, quiet: bool) -> Iterator:
    """A bar while claims are measured, on a terminal."""
    if quiet or not console.is_terminal:
        yield lambda verdict: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[last]}", style="dim"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, last="")
        yield lambda verdict: bar.update(task, advance=1, last=f"{verdict.id}: {verdict.verdict}")
