"""`heedful calibrate`: measure this machine for the planner."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rich.console import Console

from .common import UsageError, choose, plain


@dataclass
class Calibrate:
    """Measure what work costs on this machine, and keep it: plans become predictions."""

    device: str = "cpu"
    """cpu or cuda."""
    seconds: float = 60.0
    """About how long to measure."""
    show: bool = False
    """Only print the constants in use."""
    forget: bool = False
    """Delete what was measured, and go back to the defaults that ship."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        from ..attention import constants

        choose("--device", self.device, ["cpu", "cuda"])
        if self.forget:
            path = constants.calibration_file()
            there = path.exists()
            path.unlink(missing_ok=True)
            constants.forget()
            if self.json:
                print(json.dumps({"path": str(path), "forgotten": there}))
            else:
                console.print(
                    f"forgot {path}" if there else f"nothing to forget: there is no {path}", soft_wrap=True
                )
            return 0
        return self._show(console) if self.show else self._measure(console)

    def _show(self, console: Console) -> int:
        from ..attention.constants import calibration_file, constants
        from ..display import show_rows

        known = constants(self.device)
        kept = str(calibration_file()) if known.calibrated else None
        if self.json:
            print(json.dumps({"device": known.device, "path": kept, "seconds": known.seconds}))
            return 0
        rows = []
        for strategy, directions in known.seconds.items():
            for direction, (base, launch, flop, byte) in directions.items():
                rates = {"GFLOP/s": 1e-9 / flop if flop else None, "GB/s": 1e-9 / byte if byte else None}
                overheads = {"base µs": base * 1e6, "launch µs": launch * 1e6}
                rows.append({"strategy": strategy, "pass": direction, **overheads, **rates})
        show_rows(rows, console, f"{known.device}: {kept or 'defaults that ship (run: heedful calibrate)'}")
        return 0

    def _measure(self, console: Console) -> int:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        from ..attention.calibrate import calibrate
        from ..display import show_rows

        if not self.seconds > 0:
            raise UsageError(f"--seconds is {self.seconds}; it must be more than 0")
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("calibrating", total=1.0)

            def progress(share: float, what: str) -> None:
                bar.update(task, completed=share, description=what)

            found = calibrate(device=self.device, budget=self.seconds, progress=progress)
        heading, *body = found.table()
        rows = [dict(zip(heading, row, strict=True)) for row in body]
        if self.json:
            answer = {"path": str(found.path), "rows": plain(rows), "unsure": found.unsure}
            print(json.dumps(answer, allow_nan=False))
            return 0
        show_rows(rows, console)
        console.print(f"kept in {found.path}", soft_wrap=True)
        if found.unsure:
            console.print(
                f"measured too unsteadily, so left at the defaults: {', '.join(found.unsure)}. Was the "
                "machine busy? Run this again when it is idle.",
                soft_wrap=True,
            )
        return 0
