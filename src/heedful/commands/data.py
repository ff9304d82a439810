"""`heedful data list`, `show` and `fetch`: which sets there are, what they are, and having them here."""

from __future__ import annotations

from dataclasses import dataclass

import tyro
from rich.console import Console

from .common import UsageError, choose, print_json


@dataclass
class Data:
    """Datasets: list them, show one, or fetch some to have them here without a network."""

    action: tyro.conf.Positional[str] = "list"
    """list, show or fetch."""
    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which; for list and show all unless given."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        from .. import data
        from ..data.registry import readable
        from ..display import show_rows

        action = choose("action", self.action, ["list", "show", "fetch"])
        if action == "fetch" and not self.names:
            raise UsageError("fetch what? Give one name or more: heedful data fetch mnist")
        entries = [data.describe(name) for name in self.names or data.names()]
        rows = []
        for entry in entries:
            if action == "fetch":
                data.fetch(entry.name, progress=not self.json)
            state = _state(data.where(entry.name))
            rows.append({"name": entry.name, "kind": entry.kind, **state, "what": entry.what})
        if self.json:
            if action == "show":
                rows = [row | _details(entry) for row, entry in zip(rows, entries, strict=True)]
            print_json(rows)
        elif action == "show":
            for row, entry in zip(rows, entries, strict=True):
                console.print(f"{entry}\n{_place(row)}\n", highlight=False, markup=False, soft_wrap=True)
        else:
            shown = ("name", "kind", "state", "size", "what" if action == "list" else "at")
            for row in rows:
                row["size"] = readable(row["bytes"]) if row["bytes"] else "–"
            show_rows([{key: row[key] for key in shown} for row in rows], console)
        return 0


def _state(places) -> dict:
    """One word for all files of a set, and the folder or address of the first."""
    if not places:
        return {"state": "built in", "at": None, "bytes": 0}
    states = {place.state for place in places}
    worst = next(state for state in ("damaged", "remote", "cached", "local") if state in states)
    first = next(place.at for place in places if place.state == worst)
    return {"state": worst, "at": first, "bytes": sum(place.file.size for place in places)}


def _place(row: dict) -> str:
    return row["state"] if row["at"] is None else f"{row['state']}: {row['at']}"


def _details(entry) -> dict:
    files = [
        {"path": file.path, "size": file.size, "sha256": file.sha256, "addresses": list(file.addresses)}
        for file in entry.files
    ]
    return {"terms": entry.terms, "cite": entry.cite, "files": files}
