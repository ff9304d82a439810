"""`heedful doctor`: what is wrong with this training script."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from .common import Number, UsageError, choose, print_json


@dataclass
class Doctor:
    """Run a training script unchanged, watch it, and say what is wrong. What follows -- goes to the script.

    The exit status is 0 where nothing serious was found, 1 where something was, 2 where it could not be
    run, or nothing could be judged.
    """

    script: Annotated[str, tyro.conf.arg(metavar="SCRIPT"), tyro.conf.Positional] = ""
    """The script."""
    rest: tyro.conf.Suppress[tuple[str, ...]] = ()
    steps: Number = None
    """Stop after so many optimizer steps; the whole script unless given."""
    tier: str = "normal"
    """light: 1 % of the run's time; normal: 4 %, and experiments on copies after it; deep: every step."""
    prove: bool = True
    """Run patched copies of the script (of the corpus, with --self-test): do findings go?."""
    case: str | None = None
    """Instead of a script, one that ships: depth, accumulation or diverging."""
    timeout: float | None = None
    """Seconds after which the script is given up."""
    html: Path | None = None
    """Also write the report to this file."""
    json: bool = False
    """Print JSON; what the script prints goes to the standard error."""
    self_test: bool = False
    """Score the doctor on its corpus of planted bugs and healthy programs."""
    corpus: Path | None = None
    """Where the corpus is."""
    seed: int = 0
    """Of the corpus's programs."""

    def run(self, console: Console) -> int:
        if self.self_test:
            return self._self_test(console)
        from ..doctor.cases import CASES
        from ..doctor.script import NotRun, diagnose

        script = self.script
        if self.case is not None:
            script = str(CASES[choose("case", self.case, CASES)])
        if not script:
            raise UsageError("which script? As in: heedful doctor train.py --steps 50 -- --lr 0.1")
        choose("--tier", self.tier, ["light", "normal", "deep"])
        if self.steps is not None and self.steps < 1:
            raise UsageError(f"--steps is {self.steps}; it must be 1 or more")
        if self.html is not None and not self.html.parent.is_dir():
            raise UsageError(f"--html: there is no folder {str(self.html.parent)!r}")
        try:
            report = diagnose(
                script,
                self.rest,
                steps=self.steps,
                tier=self.tier,
                prove=self.prove,
                timeout=self.timeout,
                quiet=self.json,
            )
        except NotRun as error:
            raise UsageError(f"{script} could not be run: {error}") from None
        if os.environ.get("RANK", "0") != "0":
            return 0  # under torchrun the first process tells; an error here would end it before it has
        if self.case is not None:
            report.subject = f"the case {self.case}"
        if self.html is not None:
            self.html.write_text(report.to_html(), encoding="utf-8")
        if self.json:
            print_json(report.to_dict())
        else:
            report.show(console)
            if self.html is not None:
                console.print(f"written to {self.html}", style="dim", highlight=False, soft_wrap=True)
        if report.healthy and (report.raised or not report.judged):
            return 2
        return 0 if report.healthy else 1

    def _self_test(self, console: Console) -> int:
        from ..display import show_rows
        from ..doctor.selftest import self_test

        score = self_test(self.corpus, seed=self.seed, prove=self.prove)
        if self.json:
            print_json(score.to_dict())
        else:
            show_rows(score.rows(), console)
            wrong = [trial for trial in score.trials if not trial.right]
            for trial in wrong:
                what = f"planted {trial.planted}" if trial.planted else "healthy"
                console.print(
                    f"{trial.program}: {what}; found {trial.found or 'nothing'} {trial.failed}",
                    highlight=False,
                )
            console.print(score.summary(), style="bold", highlight=False)
        return 0 if score.recall >= 0.95 and len(score.false_alarms) <= 1 else 1
