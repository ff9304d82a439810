"""Verdicts as pages: for the documentation in Markdown, for the report in HTML."""

from __future__ import annotations

import base64
import html
import inspect
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .claim import VERDICTS, Claim, Verdict, claims
from .documents import DOCUMENTS

FILE = Path("claims", "verdicts.json")  # in the folder of runs
ABOUT = """# What the textbook states, measured

{count} statements of five courses, each a program that measures and judges. `heedful claims` runs them all,
`heedful claims C2.6 --explain` tells one with its numbers, its figure and its code; the [map](map.md) says
which command answers which question. A verdict is computed from the evidence, never written down: identities
hold to 1e-10 in double precision on random instances, exponents are fitted over five sizes or more,
statistics come with an interval, and what is trained says which run was judged. Every claim is tested by
breaking what it measures and seeing the verdict change.

- **holds**: all that is stated does.
- **holds, corrected**: the statement does, a detail of the text does not, and what stands instead does.
- **fails**: the statement does not.

This page is written by `heedful claims --docs docs --seeds {seeds}`. {summary}

A claim of your own is a function; run it with `heedful claims --module my_claims.py`:

```python
from heedful.claims import claim, same


@claim("X1", "my lecture notes", "The mean of a softmax is one over its length.")
def softmax_mean(draw, *, softmax=lambda x: x.softmax(-1)):
    x = draw.normal(draw.integer(1, 9), draw.integer(1, 9))
    yield same("mean of each row", softmax(x).mean(-1), 1 / x.shape[-1] + 0 * x[:, 0])
```
"""


def summary(verdicts: Sequence[Verdict]) -> str:
    """How many of each verdict, in words."""
    counts = {word: sum(verdict.verdict == word for verdict in verdicts) for word in VERDICTS}
    words = {"holds": "hold", "holds, corrected": "hold with a correction", "fails": "fail"}
    one = {"holds, corrected": "holds with a correction"}
    told = ", ".join(
        f"{count} {(one if len(verdicts) == 1 else words).get(word, word)}"
        for word, count in counts.items()
        if count
    )
    return f"{len(verdicts)} claim{'s' * (len(verdicts) != 1)}: {told}."


def _groups(entries: Iterable) -> dict[str, list]:
    found: dict[str, list] = {}
    for entry in entries:
        found.setdefault(entry.document, []).append(entry)
    return found


def page(verdicts: Sequence[Verdict]) -> str:
    """The page of claims, in Markdown."""
    seeds = max((len(verdict.seeds) for verdict in verdicts), default=0)
    lines = [ABOUT.format(count=len(verdicts), seeds=seeds, summary=summary(verdicts))]
    letters = {name: letter for letter, name in DOCUMENTS.items()}
    for document, group in _groups(verdicts).items():
        title = f"{letters[document]}: {document}" if document in letters else document
        lines += [
            f"## {title}\n",
            "| claim | states | verdict | measured | instead |",
            "|---|---|---|---|---|",
        ]
        for verdict in group:
            stated = f"{verdict.statement} *{verdict.stated}*" if verdict.stated else verdict.statement
            cells = (verdict.id, stated, f"**{verdict.verdict}**", verdict.line, verdict.corrected or "")
            lines.append(f"| {' | '.join(_cell(cell) for cell in cells)} |")
        lines.append("")
    return "\n".join(lines)


def map_page(entries: Mapping[str, Claim] | None = None) -> str:
    """Document, question, command that answers it, in Markdown."""
    entries = claims() if entries is None else entries
    lines = [
        "# Which command answers which question",
        "",
        "Of five courses, document by document. Written by `heedful claims --docs docs` from the registry of",
        "[claims](claims.md). Where a study is named, the claim judges its newest run, and runs it small",
        "where there is none; [the lab](lab.md) says how to run it as published.",
        "",
    ]
    letters = {name: letter for letter, name in DOCUMENTS.items()}
    for document, group in _groups(entries.values()).items():
        title = f"{letters[document]}: {document}" if document in letters else document
        lines += [f"## {title}", "", "| question | what it asks | command |", "|---|---|---|"]
        for entry in group:
            question = entry.id.lstrip("ABCDE") if document in letters else entry.id
            lines.append(
                f"| {' | '.join(_cell(cell) for cell in (question, entry.statement, commands(entry)))} |"
            )
        lines.append("")
    return "\n".join(lines)


def commands(entry: Claim) -> str:
    """What to type to have a claim measured, in Markdown."""
    study = study_of(entry)
    return f"`heedful claims {entry.id} --explain`" + (f" `heedful run {study}`" if study else "")


def study_of(entry: Claim) -> str | None:
    """The study whose runs a claim judges: as its code says, or a helper of its file that the code calls."""
    named = re.compile(r'\bjudged\("([\w-]+)"')
    for name, thing in vars(inspect.getmodule(entry.measure)).items():
        if (
            inspect.isfunction(thing)
            and thing.__module__ == entry.measure.__module__
            and name.startswith("_")
        ):
            found = named.search(inspect.getsource(thing))
            if found and re.search(rf"\b{name}\(", entry.code):
                return found[1]
    found = named.search(entry.code)
    return found[1] if found else None


def write_pages(verdicts: Sequence[Verdict], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "claims.md").write_text(page(verdicts), encoding="utf-8")
    (folder / "map.md").write_text(map_page(), encoding="utf-8")


def _cell(text: str) -> str:
    """Bars would end a cell."""
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def read(path: Path) -> list[Verdict]:
    """Verdicts kept as JSON, in the order of their ids."""
    found = [Verdict.from_dict(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    order = list(claims())
    return sorted(found, key=lambda v: order.index(v.id) if v.id in order else len(order))


def section(runs: Path) -> str:
    """The claims checked last, as a part of the report; nothing where none were."""
    path = Path(runs) / FILE
    if not path.exists():
        return ""
    verdicts = read(path)
    parts = [
        '<h2 id="claims">Claims: the textbook, executed</h2>',
        f"<p>{html.escape(summary(verdicts))}</p>",
    ]
    colours = {"holds": "good", "holds, corrected": "open", "fails": "bad"}
    for document, group in _groups(verdicts).items():
        rows = []
        for verdict in group:
            word = f'<span class="{colours.get(verdict.verdict, "open")}">{verdict.verdict}</span>'
            cells = [verdict.id, verdict.statement, None, verdict.line, verdict.corrected or ""]
            told = "".join(f"<td>{word if cell is None else html.escape(cell)}</td>" for cell in cells)
            rows.append(f"<tr>{told}</tr>")
        head = "".join(f"<th>{name}</th>" for name in ("claim", "states", "verdict", "measured", "instead"))
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        parts += [f"<h3>{html.escape(document)}</h3>", f'<div class="scroll" tabindex="0">{table}</div>']
        parts += [_image(verdict) for verdict in group]
    parts += ["<h3>Run it again</h3>", "<pre>heedful claims</pre>"]
    return "".join(parts)


def _image(verdict: Verdict) -> str:
    try:
        figure = verdict.figure()
    except Exception as error:  # a picture that fails must not take the report with it
        return f'<p class="bad">{verdict.id}: the figure could not be drawn: {html.escape(str(error))}</p>'
    if figure is None:
        return ""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=80)
    words = html.escape(f"{verdict.id}: {verdict.statement}", quote=True)
    image = f'<img alt="{words}" src="data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}">'
    return f'<figure>{image}<figcaption class="soft">{words}</figcaption></figure>'
