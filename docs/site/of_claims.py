"""A page a claim, from the registry and the verdicts kept with the documentation; links to them."""

from __future__ import annotations

import io
import re
from functools import cache
from pathlib import Path

from words import code, plain, table

from heedful.claims import Claim, Verdict, claims
from heedful.claims.documents import DOCUMENTS
from heedful.claims.page import commands, read, study_of

DOCS = Path(__file__).resolve().parents[1]
MARKS = {True: "✓", False: "✗", None: "·"}
ROLES = {"stated": "stated", "detail": "a detail", "corrected": "instead", "shown": ""}


def pages() -> dict[str, str | bytes]:
    found: dict[str, str | bytes] = {}
    for entry in ours().values():
        verdict = verdicts().get(entry.id)
        picture = None if verdict is None else verdict.figure()
        if picture is not None:
            data = io.BytesIO()
            picture.savefig(data, format="png", dpi=100)
            found[f"claims/{entry.id}.png"] = data.getvalue()
        found[f"claims/{entry.id}.md"] = page(entry, verdict, picture is not None)
    return found


def ours() -> dict[str, Claim]:
    """Those that come with heedful, not what an example registered."""
    return {
        id: entry for id, entry in claims().items() if entry.measure.__module__.startswith("heedful.claims.")
    }


@cache
def verdicts() -> dict[str, Verdict]:
    """Of the newest full run that is kept."""
    kept = max((DOCS / "results").glob("*-claims.json"))
    return {verdict.id: verdict for verdict in read(kept)}


def page(entry: Claim, verdict: Verdict | None, picture: bool) -> str:
    parts = [f"# {entry.id}", f"**{plain(entry.statement)}**"]
    parts += (
        [f"From {plain(entry.document)}, where it reads: *{plain(entry.stated)}*."]
        if entry.stated
        else [f"From {plain(entry.document)}."]
    )
    if verdict is None:
        parts.append("It has not been measured for these pages yet; the command below does.")
    else:
        seeds = f"{len(verdict.seeds)} seeds" if len(verdict.seeds) > 1 else "one seed"
        parts.append(f"Verdict at {seeds}: **{verdict.verdict}**.")
        if verdict.corrected:
            parts.append(f'!!! note "Instead"\n    {plain(verdict.corrected)}')
        rows = [
            (MARKS[each.holds], plain(str(each)), ROLES.get(each.role, each.role))
            for each in verdict.evidence
            if each.kind != "curve"
        ]
        parts += ["## Evidence", table(["", "measured", "of what"], rows)]
        if picture:
            parts.append(f"![what was measured for {entry.id}]({entry.id}.png)")
    parts += ["## Measure it", code(f"heedful claims {entry.id} --explain")]
    if study := study_of(entry):
        parts.append(f"It judges the newest run of [{study}](../studies/{study}.md), or else a quick one:")
        parts.append(code(f"heedful run {study}"))
    module = entry.measure.__module__.replace(".", "/")
    parts += ["## The code that measures", f"`src/{module}.py`", code(entry.code, "py")]
    return "\n\n".join(parts) + "\n"


def navigation() -> str:
    """Claims by document, as the site's settings list them."""
    lines = []
    for letter, document in DOCUMENTS.items():
        lines.append(f'- "{letter}: {document}":')
        lines += [f"    - claims/{id}.md" for id, entry in ours().items() if entry.document == document]
    return "\n".join(lines)


@cache
def _by_study() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for id, entry in ours().items():
        if study := study_of(entry):
            found.setdefault(study, []).append(id)
    return found


def of_study(name: str) -> list[str]:
    return _by_study().get(name, [])


def linked(markdown: str) -> str:
    """The page of claims and the map with every claim linked to its own page."""
    markdown = re.sub(r"^\| ([A-E]\d[\d.]*) \|", r"| [\1](claims/\1.md) |", markdown, flags=re.M)
    return re.sub(
        r"^\| ([\d.]+) (\|.*`heedful claims (\S+) --explain`.*\|)$",
        r"| [\1](claims/\3.md) \2",
        markdown,
        flags=re.M,
    )


def readme() -> str:
    """The map as the README has it, a folded table a document; `python docs/site --readme` writes it."""
    parts = []
    for letter, document in DOCUMENTS.items():
        group = [entry for entry in ours().values() if entry.document == document]
        rows = [(entry.id.removeprefix(letter), entry.statement, commands(entry)) for entry in group]
        parts += [
            f"<details><summary>{letter}: {document}, {len(group)} questions: "
            f"<code>heedful claims --document {letter}</code></summary>",
            table(["question", "what it asks", "command"], rows),
            "</details>",
        ]
    return "\n\n".join(parts)


def with_map(text: str) -> str:
    """A README with the map as it is now between its marks."""
    return re.sub(
        r"(?<=<!-- map -->\n\n).*?(?=\n\n<!-- /map -->)", lambda _: readme(), text, count=1, flags=re.S
    )
