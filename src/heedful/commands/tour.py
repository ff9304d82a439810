"""`heedful tour`: the operator in a minute."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from .common import plain


@dataclass
class Tour:
    """The operator in a minute: what it equals, how it plans, where one way overtakes another."""

    output: Path = Path("runs/tour")
    """Where the figure goes."""
    json: bool = False
    """Print what was found as JSON."""

    def run(self, console: Console) -> int:
        from ..tour import tour

        found = tour(self.output, Console(stderr=True, quiet=True) if self.json else console)
        if self.json:
            print(json.dumps(plain(found.to_dict()), allow_nan=False))
        return 0 if found.holds else 1
