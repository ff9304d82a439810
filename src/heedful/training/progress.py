"""A line that tells how far a training is and when it will end, on a terminal or in a notebook."""

from __future__ import annotations

import time
from collections.abc import Mapping


class Bar:
    """Redrawn when it is updated, or by itself if it is to look `alive` between updates.

    A loop asks `due` before it updates, five times a second at most; asking takes a tenth of a microsecond.
    """

    def __init__(self, show: bool, total: float | None, what: str = "training", *, alive: bool = False):
        self.bar = None
        self._next = 0.0
        if not show:
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        console = Console(stderr=True)
        if not console.is_terminal and not console.is_jupyter:
            return
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("·"),
            TimeRemainingColumn(),
            TextColumn("left  {task.fields[found]}"),
            console=console,
            transient=True,
            auto_refresh=alive,
            refresh_per_second=2,
            speed_estimate_period=60,
        )
        self.task = self.bar.add_task(what, total=total, found="")

    def __enter__(self) -> Bar:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    @property
    def due(self) -> bool:
        return self.bar is not None and time.monotonic() >= self._next

    def update(self, done: float, found: Mapping[str, float] | str = "", what: str | None = None) -> None:
        """Move to `done` and show what was found last."""
        if self.bar is None:
            return
        text = found if isinstance(found, str) else "  ".join(f"{k} {v:.4g}" for k, v in found.items())
        self._next = time.monotonic() + 0.2
        self.bar.update(self.task, completed=done, found=text, refresh=True, description=what)
