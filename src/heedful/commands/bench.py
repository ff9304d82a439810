"""`heedful bench`: every figure the README quotes, measured here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from .common import UsageError, choose, plain


@dataclass
class Bench:
    """Run benchmarks: every one, or those named."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which; see --list."""
    quick: bool = False
    """Small sizes: seconds instead of minutes."""
    device: str = "cpu"
    """cpu or cuda."""
    json: Path | None = None
    """Also write the results to this file; - for the standard output, and no tables."""
    list: bool = False
    """Only say which benchmarks there are."""

    def run(self, console: Console) -> int:
        from .. import bench
        from ..display import show_rows

        silent = self.json == Path("-")
        if self.list:
            rows = [{"name": name, "title": entry.title} for name, entry in bench.table(self.device).items()]
            self._write(rows)
            if not silent:
                show_rows(rows, console)
            return 0
        known, other = bench.table(self.device), "cpu" if self.device == "cuda" else "cuda"
        for name in self.names:
            if name not in known and name in bench.table(other):
                raise UsageError(f"{name!r} is measured on {other} alone; add --device {other}.")
            choose("benchmark", name, known)
        results = []
        for result in bench.run(list(self.names), quick=self.quick, device=self.device):
            results.append(result.to_dict())
            if not silent:
                self._write(results)  # what is measured is not lost with what comes after it
                if result.rows:
                    show_rows(result.rows, console, f"{result.name}: {result.title}")
                console.print(
                    result.verdict if result.rows else f"{result.name}: {result.verdict}",
                    style="bold", highlight=False, soft_wrap=True, markup=False,
                )  # fmt: skip
                console.print()
        if silent:
            self._write(results)
        return int(any("error" in result["settings"] for result in results))

    def _write(self, results) -> None:
        if self.json is None:
            return
        text = json.dumps(plain(results), indent=1, allow_nan=False)
        if self.json == Path("-"):
            print(text)
        else:
            self.json.parent.mkdir(parents=True, exist_ok=True)
            self.json.write_text(text + "\n")
