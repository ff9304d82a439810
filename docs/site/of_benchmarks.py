"""The benchmarks' verdicts as their JSON has them, put below the page on how they are measured."""

from __future__ import annotations

import json
from pathlib import Path

from words import plain, table

RESULTS = Path(__file__).resolve().parents[1] / "results"
MARK = {True: "yes", False: "no", None: "–"}


def section() -> str:
    parts = [""]
    for path in sorted(RESULTS.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        entries = [entry for entry in found if "reached" in entry] if isinstance(found, list) else []
        if entries:
            first = entries[0]
            rows = [
                (f"`{entry['name']}`", plain(entry["title"]), plain(entry["verdict"]), MARK[entry["reached"]])
                for entry in entries
            ]
            parts += [
                f"## {first['date']}, {path.stem.split('-')[-1]}",
                f"{plain(first['machine'])}. Every number: [{path.name}](results/{path.name}).",
                table(["benchmark", "what", "found", "reached"], rows),
            ]
    return "\n\n".join(parts) + "\n"
