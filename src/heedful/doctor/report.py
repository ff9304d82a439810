"""What the doctor says: on a terminal, as text, as one HTML file, as JSON."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from .findings import Finding

_MARKS = {"serious": "✗", "warning": "!", "note": "·"}
_BARS = "▁▂▃▄▅▆▇█"
# A name beside its text where there is room for both, above it on a phone.
_STYLE = """
.finding { display: grid; grid-template-columns: 10rem 1fr; gap: .45rem 1rem; margin: .8rem 0; }
.finding dt { font-weight: 600; opacity: .65; }
.finding dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .finding { grid-template-columns: 1fr; gap: .1rem; }
  .finding dd { margin-bottom: .6rem; }
}
"""


@dataclass
class Report:
    """Findings, the worst first. `print(report)` is the report; `healthy` is whether none is serious."""

    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: int = 0
    looks: int = 0
    losses: list[float] = field(default_factory=list)
    raised: str = ""
    judged: bool = True  # whether there was anything to judge
    measured: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    own: float = 0.0
    subject: str = ""

    @property
    def healthy(self) -> bool:
        return not any(entry.severity == "serious" for entry in self.findings)

    @property
    def alarms(self) -> list[Finding]:
        """Findings that are more than notes."""
        return [entry for entry in self.findings if entry.severity != "note"]

    def __contains__(self, name: str) -> bool:
        return any(entry.name == name for entry in self.findings)

    def __getitem__(self, name: str) -> Finding:
        for entry in self.findings:
            if entry.name == name:
                return entry
        raise KeyError(name)

    # As text

    def headline(self) -> str:
        counts = [
            f"{sum(f.severity == s for f in self.findings)} {s}"
            for s in _MARKS
            if any(f.severity == s for f in self.findings)
        ]
        what = f"{self.subject}: " if self.subject else ""
        return f"{what}{', '.join(counts) or self._without_findings()}"

    def _without_findings(self) -> str:
        if self.raised and self.raised != "KeyboardInterrupt":
            return f"it raised {self.raised.partition(':')[0]}, and no cause was seen"
        return "nothing wrong was seen" if self.judged else "nothing could be judged"

    def about(self) -> str:
        said = [f"{self.steps} steps" if self.steps != 1 else "1 step"] if self.steps else []
        if self.losses:
            ends = [f"{value:.4g}" for value in (self.losses[0], self.losses[-1])]
            said.append(f"loss {ends[0]} {curve(self.losses)} {ends[1]}")
        if self.raised:
            interrupted = self.raised == "KeyboardInterrupt"
            said.append("it was interrupted" if interrupted else f"the script raised {self.raised}")
        return " · ".join(said)

    def __str__(self) -> str:
        lines = [self.headline()]
        if self.about():
            lines.append(self.about())
        for entry in self.findings:
            lines += ["", *_lines(entry)]
        if self.notes:
            lines += ["", *(f"note: {text}" for text in self.notes)]
        return "\n".join(lines)

    def show(self, console) -> None:
        """As `print` has it, with colours on a terminal."""
        if not console.is_terminal:
            console.file.write(f"{self}\n")
            return
        colours = {"serious": "bold red", "warning": "yellow", "note": "dim"}
        console.print(self.headline(), style="bold", highlight=False, markup=False)
        if self.about():
            console.print(self.about(), style="dim", highlight=False, markup=False)
        for entry in self.findings:
            first, *rest = _lines(entry)
            console.print()
            console.print(first, style=colours[entry.severity], highlight=False, markup=False)
            for line in rest:
                text = line.strip()
                style = "green" if text.startswith("+") else "red" if text.startswith("-") else ""
                if text.startswith("proof"):
                    style = "bold green"
                console.print(line, style=style, highlight=False, markup=False)
        for text in self.notes:
            console.print(f"note: {text}", style="dim", highlight=False, markup=False)

    # As data

    def to_dict(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "healthy": self.healthy,
            "steps": self.steps,
            "looks": self.looks,
            "raised": self.raised,
            "judged": self.judged,
            "seconds": self.seconds,
            "own": self.own,
            "findings": [entry.to_dict() for entry in self.findings],
            "notes": self.notes,
            "measured": {k: v if math.isfinite(v) else str(v) for k, v in self.measured.items()},
            "losses": [value if math.isfinite(value) else str(value) for value in self.losses],
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Report:
        return cls(
            findings=[Finding.from_dict(entry) for entry in found["findings"]],
            notes=found["notes"],
            steps=found["steps"],
            looks=found["looks"],
            losses=[float(value) for value in found["losses"]],
            raised=found["raised"],
            judged=found.get("judged", True),
            measured={name: float(value) for name, value in found["measured"].items()},
            seconds=found["seconds"],
            own=found["own"],
            subject=found["subject"],
        )

    def to_html(self) -> str:
        """One page, no network."""
        style = resources.files("heedful.lab").joinpath("report.css").read_text()
        title = html.escape(f"heedful doctor · {self.subject or 'report'}")
        body = [
            f"<h1>{html.escape(self.headline())}</h1>",
            f'<p class="soft">{html.escape(self.about())}</p>',
        ]
        if len(self.losses) > 2:
            body.append(_plot(self.losses))
        kinds = {"serious": "bad", "warning": "open", "note": "soft"}
        for entry in self.findings:
            body.append(f'<h2 class="{kinds[entry.severity]}">{html.escape(entry.kind.title)}</h2>')
            rows = [("what", entry.what), ("where", _where(entry)), ("measured", _number(entry.measured))]
            rows += [("healthy", entry.kind.healthy), ("why this threshold", entry.kind.reason)]
            rows += [("cause", entry.cause), ("follows from it", "; ".join(entry.consequences))]
            body.append(_named(rows + [("fix", entry.kind.fix)]))
            if entry.patch:
                body.append(f"<pre>{_coloured(entry.patch)}</pre>")
            if entry.proof:
                body.append(_named([("proof", entry.proof)]))
        body += [f'<p class="soft">{html.escape(text)}</p>' for text in self.notes]
        return (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>{style}{_STYLE}</style></head><body>{''.join(body)}</body></html>"
        )

    def _repr_html_(self) -> str:
        return self.to_html()


def _lines(entry: Finding) -> list[str]:
    lines = [f"{_MARKS[entry.severity]} {entry.kind.title}  [{entry.name}]", f"    {entry.what}"]
    if _where(entry):
        lines.append(f"    where     {_where(entry)}")
    lines.append(f"    measured  {_number(entry.measured)}   healthy: {entry.kind.healthy}")
    lines.append(f"    cause     {entry.cause}")
    lines.append(f"    fix       {entry.kind.fix}")
    lines += [f"      {line}" for line in entry.patch.splitlines()]
    if entry.proof:
        lines.append(f"    proof     {entry.proof}")
    if entry.consequences:
        lines.append(f"    follows   {'; '.join(entry.consequences)}")
    return lines


def _where(entry: Finding) -> str:
    said = [entry.where] if entry.where else []
    if entry.place is not None:
        said.append(f"{entry.place}  {entry.place.text}".rstrip())
    return " · ".join(said)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _named(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f"<dt>{name}</dt><dd>{html.escape(text)}</dd>" for name, text in rows if text)
    return f'<dl class="finding">{cells}</dl>'


def _coloured(patch: str) -> str:
    found = []
    for line in patch.splitlines():
        kind = "good" if line.startswith("+") else "bad" if line.startswith("-") else "soft"
        found.append(f'<span class="{kind}">{html.escape(line)}</span>')
    return "\n".join(found)


def curve(values: Sequence[float], width: int = 24) -> str:
    """A line of bars, low to high."""
    if len(values) > width:
        values = [values[round(k * (len(values) - 1) / (width - 1))] for k in range(width)]
    sound = [v for v in values if math.isfinite(v)]
    if not sound:
        return ""
    low, high = min(sound), max(sound)
    bar = lambda v: _BARS[min(7, int((v - low) / (high - low) * 8))] if high > low else _BARS[0]  # noqa: E731
    return "".join(bar(v) if math.isfinite(v) else "∞" for v in values)


def _plot(values: Sequence[float]) -> str:
    """The losses as a picture."""
    sound = [(k, v) for k, v in enumerate(values) if math.isfinite(v)]
    if not sound:
        return ""
    low, high = min(v for _, v in sound), max(v for _, v in sound)
    span = (high - low) or 1.0
    points = " ".join(
        f"{k / max(1, len(values) - 1) * 600:.1f},{110 - (v - low) / span * 100:.1f}" for k, v in sound
    )
    return (
        f'<figure><svg viewBox="0 0 600 120" role="img" aria-label="loss by step" style="max-width:46rem">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg></figure>'
    )
