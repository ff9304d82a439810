"""One HTML file of everything the lab found: no network, figures inside, fit for a phone and for the dark."""

from __future__ import annotations

import base64
import html
import io
import os
import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from .result import Result, html_table
from .store import Store
from .study import Study, studies


def report(
    store: Store | str | os.PathLike = "runs",
    path: str | os.PathLike | None = None,
    *,
    sections: Sequence[str] = (),
) -> Path:
    """Write the newest run of every study to one HTML file; its path.

    A study's complete full run is shown before a quick one, a newer before an older. `sections` are HTML, put
    after the studies.
    """
    store = store if isinstance(store, Store) else Store(store)
    results = newest(store)
    path = Path(path) if path is not None else store.folder / "latest" / "report.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    for result in results:
        _keep_figure(result, path.parent)
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(page(results, sections), encoding="utf-8")
    os.replace(beside, path)
    return path


def newest(store: Store) -> list[Result]:
    """The run to show of each study that has one, in the order of their names."""
    known = studies()
    chosen: dict[str, tuple[tuple[bool, bool], Result]] = {}
    for run in store.runs():  # newest first
        if run.study not in known:
            continue
        result = Result(known[run.study], run, store)
        if not any(trial.status == "done" for trial in result.trials):
            continue
        rank = (run.profile == "full", result.complete)
        if run.study not in chosen or rank > chosen[run.study][0]:
            chosen[run.study] = (rank, result)
    return [chosen[name][1] for name in sorted(chosen)]


def scoreboard(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One line a study: what it asks, what was found, how it stands to what was published."""
    return [
        {
            "study": result.study.name,
            "question": result.study.question,
            "profile": result.run.profile,
            "seeds": len(result.run.seeds),
            "verdict": verdict(result),
            "date": time.strftime("%Y-%m-%d", time.localtime(result.run.started)),
        }
        for result in results
    ]


def verdict(result: Result) -> str:
    """How many of the published figures were reproduced, in words."""
    found = [
        agreement.verdict
        for key, _ in result.run.variants
        for metric in result.study.metrics
        if (agreement := result.agreement(key, metric)) is not None
    ]
    own = getattr(result.study.settings, "verdict", None)
    said = [words] if own is not None and (words := own(result)) else []
    if found:
        counts = [
            f"{found.count(word)} {word}" for word in ("reproduced", "differs", "undecided") if word in found
        ]
        said.append(f"of {len(found)} published figures: {', '.join(counts)}")
    if result.failures:
        said.append(f"{len(result.failures)} trials failed")
    if not result.complete:
        said.append("incomplete")
    return "; ".join(said) or "no published figure"


def page(results: Sequence[Result], sections: Sequence[str] = ()) -> str:
    """The whole report as HTML."""
    date = time.strftime("%Y-%m-%d %H:%M")
    body = ["<h1>heedful: what the lab found</h1>", f'<p class="soft">{date}</p>']
    if not results:
        body.append("<p>Nothing yet. Run a study: <code>heedful run padding --profile quick</code></p>")
    else:
        rows = scoreboard(results)
        for row in rows:
            row["study"] = _Raw(f'<a href="#{html.escape(row["study"])}">{html.escape(row["study"])}</a>')
        body.append(_scrolled(rows))
        body += [_section(result) for result in results]
    body += sections
    title = "heedful: what the lab found"
    style = resources.files(__package__).joinpath("report.css").read_text()
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body>{''.join(body)}</body></html>"
    )


def _section(result: Result) -> str:
    study, run = result.study, result.run
    measured = "; ".join(f"{name}: {what}" for name, what in result.measured().items())
    spread = "n" if study.ddof == 0 else "n − 1"
    many = f"Mean ± standard deviation over {len(run.seeds)} seeds (divided by {spread})"
    over = many if len(run.seeds) > 1 else "One seed"
    parts = [
        f'<h2 id="{html.escape(study.name)}">{html.escape(study.name)}</h2>',
        f"<p>{html.escape(study.question)}</p>",
        f'<p class="soft">{html.escape(study.source)}</p>',
        _scrolled([_coloured(row) for row in result.rows()]),
        f'<p class="soft">{html.escape(measured)}. {html.escape(over)}.</p>',
        _image(result),
        *(f'<pre class="words">{html.escape(remark)}</pre>' for remark in result.remarks()),
    ]
    clear = [row for row in result.comparisons() if (row["p corrected"] or 1) < 0.05] if study.metrics else []
    if clear and len(run.variants) > 1:
        shown = sorted(clear, key=lambda row: row["p corrected"])[:12]
        rows = [{"variant": r["variant"], "against": r["against"], "difference": r["says"]} for r in shown]
        parts += [
            f"<h3>Differences between variants, paired by seed ({len(clear)} clear)</h3>",
            _scrolled(rows),
        ]
    about = ", ".join(
        f"{name} {run.about[name]}" for name in ("heedful", "torch", "python") if name in run.about
    )
    parts += [
        "<h3>Run it again</h3>",
        f"<pre>{html.escape(run.command)}</pre>",
        f'<p class="soft">{html.escape(" · ".join([run.id, about, run.about.get("machine", "")]))}</p>',
    ]
    return "".join(parts)


class _Raw(str):
    """HTML already."""


def _coloured(row: dict[str, Any]) -> dict[str, Any]:
    kinds = {"reproduced": "good", "differs": "bad", "undecided": "open"}
    found = {}
    for name, cell in row.items():
        kind = kinds.get(str(cell).split()[0].rstrip(":")) if name.endswith(", verdict") and cell else None
        found[name] = _Raw(f'<span class="{kind}">{html.escape(cell)}</span>') if kind else cell
    return found


def _scrolled(rows: list[dict[str, Any]]) -> str:
    return f'<div class="scroll" tabindex="0">{html_table(rows, raw=_Raw)}</div>'


def _image(result: Result) -> str:
    data = io.BytesIO()
    try:
        result.figure().savefig(data, format="png")
    except Exception as error:  # a picture that fails must not take the report with it
        return f'<p class="bad">The figure could not be drawn: {html.escape(str(error))}</p>'
    text = base64.b64encode(data.getvalue()).decode()
    words = html.escape(f"{result.study.name}: {result.study.question}")
    return f'<figure><img alt="{words}" src="data:image/png;base64,{text}"></figure>'


def _keep_figure(result: Result, folder: Path) -> None:
    for kind in ("png", "svg"):
        try:
            result.figure().savefig(folder / f"{result.study.name}.{kind}")
        except Exception:
            return


def listing(known: dict[str, Study], store: Store | None) -> list[dict[str, Any]]:
    """Every study: question, source, cost, and its newest result."""
    shown = {} if store is None else {result.study.name: result for result in newest(store)}
    return [
        {
            "study": name,
            "question": entry.question,
            "quick": entry.cost.get("quick"),
            "full": entry.cost.get("full"),
            "last result": verdict(shown[name]) if name in shown else None,
            "source": entry.source,
        }
        for name, entry in known.items()
    ]
