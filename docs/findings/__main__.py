"""`python docs/findings` writes the page and the picture of every finding anew, from the doctor's registry.

The dots are what the doctor measured in its corpus; `python docs/findings --measure` runs the corpus first.
"""

from __future__ import annotations

import html
import json
import math
import sys
from pathlib import Path

from heedful.doctor.findings import KINDS, Kind

FOLDER = Path(__file__).parent
CORPUS = FOLDER.parents[1] / "tests" / "doctor" / "corpus"
DATA = FOLDER / "measured.json"
GOOD, BAD, INK, SOFT = "#2f7d4f", "#b2452f", "#4a515b", "#c9c4b8"
PROOF = ("planted", "patched", "healed", "experiment")
WIDTH, LEFT, RIGHT = 640, 120, 20


def measure() -> None:
    """Run the corpus, keep what it measured by finding and by planted or healthy, and how patches did."""
    from heedful.doctor.selftest import self_test

    kept: dict[str, dict[str, list[float]]] = {}
    score = self_test(prove=True)
    for trial in score.trials:
        for name, value in trial.measured.items():
            if trial.planted in (None, name) and value is not None:
                row = "planted" if trial.planted else "healthy"
                number = float(f"{float(value):.3g}")
                kept.setdefault(name, {}).setdefault(row, []).append(
                    number if math.isfinite(number) else 1e12
                )
    for rows in kept.values():
        for numbers in rows.values():
            numbers.sort()
    proofs = {row["finding"]: [row[key] for key in PROOF] for row in score.rows()}
    kept["proofs"] = dict(sorted(proofs.items()))  # type: ignore[assignment]
    DATA.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def picture(kind: Kind, rows: dict[str, list[float]]) -> str:
    """Dots on a logarithmic line: healthy programs above, planted ones below; zero stands at the left."""
    sizes = [abs(value) for numbers in rows.values() for value in numbers if value]
    low = math.floor(math.log10(min(sizes))) if sizes else 0
    high = math.ceil(math.log10(max(sizes))) if sizes else 1
    low, high = max(low, -18), max(high, low + 1)
    zero = any(value == 0 for numbers in rows.values() for value in numbers)
    start = LEFT + (40 if zero else 0)

    def x(value: float) -> float:
        if value == 0:
            return LEFT + 8
        return start + (math.log10(abs(value)) - low) / (high - low) * (WIDTH - RIGHT - start)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 120" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img" '
        f'aria-label="{html.escape(kind.measures)}">',
        f'<rect width="{WIDTH}" height="120" fill="#fbfaf7"/>',
        f'<line x1="{LEFT}" y1="84" x2="{WIDTH - RIGHT}" y2="84" stroke="{SOFT}"/>',
    ]
    every = max(1, (high - low) // 6)
    marks = [(10.0**k, f"1e{k}" if abs(k) > 3 else f"{10.0**k:g}") for k in range(low, high + 1, every)]
    for value, label in ([(0.0, "0")] if zero else []) + marks:
        parts.append(f'<line x1="{x(value):.1f}" y1="80" x2="{x(value):.1f}" y2="88" stroke="{SOFT}"/>')
        parts.append(f'<text x="{x(value):.1f}" y="104" text-anchor="middle" fill="{INK}">{label}</text>')
    for name, y, colour in (("healthy", 30, GOOD), ("planted", 60, BAD)):
        numbers = rows.get(name, [])
        words = f"{len(numbers)} {name}" if numbers else f"{name}: none"
        parts.append(f'<text x="8" y="{y + 4}" fill="{colour}">{words}</text>')
        parts += [
            f'<circle cx="{x(v):.1f}" cy="{y}" r="5" fill="{colour}" fill-opacity="0.45"/>' for v in numbers
        ]
    return "".join(parts) + "</svg>\n"


def page(kind: Kind) -> str:
    """The finding as its registry has it, with the shortest program of the corpus that shows it."""
    planted = json.loads((CORPUS / "planted.json").read_text(encoding="utf-8"))
    programs = [(CORPUS / name).read_text(encoding="utf-8") for name in planted if planted[name] == kind.name]
    program = min(programs, key=len) if programs else ""
    lines = [
        f"# {kind.title}",
        "",
        f"`{kind.name}`, {kind.severity}. Written by `python docs/findings` from the doctor's registry.",
        "",
        "## Symptom",
        "",
        kind.symptom,
        "",
        "## Cause",
        "",
        kind.cause,
        "",
        "## Fix",
        "",
        kind.fix,
        "",
        f"The patch: {kind.patch}",
        "",
        proved(kind),
        "",
        "## The number",
        "",
        f"Measured: {kind.measures}. Healthy: {kind.healthy}.",
        "",
        f"Why there: {kind.reason}",
        "",
        f"![what the doctor measured in its corpus]({kind.name}.svg)",
        "",
        "Each dot is a program of the [corpus](../../tests/doctor/corpus): healthy ones above, "
        "those with this bug planted below.",
    ]
    if kind.explains:
        others = ", ".join(f"[{KINDS[name].title.lower()}]({name}.md)" for name in kind.explains)
        lines += ["", f"Where this is found, these are told as following from it: {others}."]
    if program:
        lines += ["", "## A program that has it", "", "```python", program.strip(), "```"]
    return "\n".join(lines) + "\n"


def proved(kind: Kind) -> str:
    """How often the patch was written, and healed the program it was written for."""
    planted, patched, healed, experiment = data()["proofs"].get(kind.name, (0, 0, 0, 0))
    said = f"Of {planted} programs of the corpus with this bug, {patched or 'none'} got a patch"
    if patched:
        said += f"; patched and run again, {healed} had it no more"
    return said + (f"; {experiment} were proved by experiments on copies." if experiment else ".")


def data() -> dict:
    return json.loads(DATA.read_text(encoding="utf-8"))


if __name__ == "__main__":
    if "--measure" in sys.argv:
        measure()
    for name, kind in KINDS.items():
        (FOLDER / f"{name}.md").write_text(page(kind), encoding="utf-8")
        (FOLDER / f"{name}.svg").write_text(picture(kind, data().get(name, {})), encoding="utf-8")
