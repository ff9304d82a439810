"""Tables and plans on a terminal with rich; the same words, plain, when the output goes to a file or pipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from .attention import Plan


def show_plan(plan: Plan, console: Console) -> None:
    """What `print(plan)` says. On a terminal, the ways that can run stand above those that cannot."""
    if not console.is_terminal:
        console.file.write(f"{plan}\n")
        return
    what, shape = str(plan.problem).splitlines()
    heading, *rows = plan.rows()
    costs = _table(heading)
    reasons = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    reasons.add_column(no_wrap=True, min_width=max(len(row[0]) for row in rows))
    reasons.add_column()
    for name, *cells in rows:
        if len(cells) == 1:
            reasons.add_row(name, escape(cells[0]), style="dim")
        else:
            costs.add_row(name, *cells, style="bold green" if name.startswith("→") else "")
    machine = "calibrated" if plan.calibrated else "default constants (run: heedful calibrate)"
    console.print(
        Group(
            Text(what, style="bold"),
            Text(shape),
            Text(f"on {plan.device}, {machine}", style="dim"),
            Padding(costs, (1, 0, 0, 0)),
            reasons,
        ),
        highlight=False,
    )


def show_rows(rows: Iterable[Mapping[str, object]], console: Console, title: str = "") -> None:
    """A list of records as a table: numbers to the right, words to the left."""
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = [[_cell(row.get(name)) for name in names] for row in rows]
    numeric = [all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in names]
    if console.is_terminal:
        table = _table(names, numeric, title)
        for cells in text:
            table.add_row(*map(escape, cells))
        console.print(table, highlight=False)
        return
    widths = [max(map(len, column)) for column in zip(names, *text, strict=True)]
    lines = [title] if title else []
    for cells in [names, *text]:
        aligned = (f"{c:>{w}}" if n else f"{c:<{w}}" for c, w, n in zip(cells, widths, numeric, strict=True))
        lines.append("  ".join(aligned).rstrip())
    console.file.write("\n".join(lines) + "\n")


def _table(names: Sequence[str], numeric: Sequence[bool] | None = None, title: str = "") -> Table:
    table = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="dim",
        title=title or None,
        title_justify="left",
    )
    for place, name in enumerate(names):
        right = numeric[place] if numeric else place > 0
        table.add_column(name, justify="right" if right else "left", no_wrap=place == 0)
    return table


def _cell(thing) -> str:
    if thing is None:
        return "–"
    if isinstance(thing, bool):
        return "yes" if thing else "no"
    if isinstance(thing, tuple):  # an interval
        return " … ".join(map(_cell, thing))
    return f"{thing:.4g}" if isinstance(thing, float) else str(thing)
