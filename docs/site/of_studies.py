"""A page a study, from the lab's registry: question, how to run it, settings, published figures, results."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
import tokenize
from dataclasses import fields
from functools import cache
from io import StringIO
from pathlib import Path
from typing import get_args

import of_architectures
import of_claims
from words import code, plain, prose, table

from heedful import lab

DOCS = Path(__file__).resolve().parents[1]


def pages() -> dict[str, str]:
    known = studies()
    return {
        "studies/index.md": index(known),
        **{f"studies/{name}.md": page(study) for name, study in known.items()},
    }


@cache
def studies() -> dict[str, lab.Study]:
    """Those that come with heedful; a page's own examples are left out."""
    return {
        name: study
        for name, study in lab.studies().items()
        if study.settings.__module__.startswith("heedful.studies.")
    }


def index(known) -> str:
    rows = [
        (f"[{name}]({name}.md)", plain(study.question), study.cost.get("quick"), study.cost.get("full"))
        for name, study in known.items()
    ]
    return "\n\n".join(
        [
            "# Studies",
            "Each asks one question, has the settings and figures it was published with, and runs over many "
            "seeds. [The lab](../lab.md) says how; `heedful list` prints this table. Times are about what "
            "two cores need.",
            table(["study", "asks", "quick", "full"], rows),
        ]
    )


def page(study: lab.Study) -> str:
    name = study.name
    parts = [f"# {name}", f"**{plain(study.question)}**"]
    about = inspect.getdoc(study.settings) or ""
    if about and not about.startswith(f"{study.settings.__name__}("):  # what dataclass writes by itself
        parts.append(prose(re.sub(r"\s*\n\s*", " ", about)))
    parts.append(f"Source: {plain(study.source)}.")
    picture = DOCS / "figures" / f"{name}.png"
    if picture.exists():
        parts += [
            f"![{plain(study.question)}](../figures/{name}.png)",
            "The figure as the quick profile draws it.",
        ]
    parts += ["## Run it", code(commands(study))]
    if study.metrics:
        parts += [
            "## What is measured",
            table(["number", "is"], [(plain(key), plain(what)) for key, what in study.metrics.items()]),
        ]
    parts += [
        "## Settings",
        "`--set NAME=VALUE` changes one; those marked are compared, every value unless one is given.",
        table(["setting", "full", "quick", "takes", ""], settings(study)),
    ]
    published = list(figures(study))
    if published:
        names = [*study.axes, "number", "published", "source"]
        parts += ["## Published", table(names, published)]
    for path, found in results(name):
        told, machine = found["about"], found["about"]["machine"]
        title = path.stem.replace("-", " ")
        parts += [f"## Found: {title}" if title != name else "## Found"]
        parts += [found["note"]] if "note" in found else []
        columns = list(dict.fromkeys(key for row in found["rows"] for key in row))
        parts += [
            table(columns, [[row.get(key) for key in columns] for row in found["rows"]]),
            f"`{told['command']}` on {machine}, torch {told['torch']}, {told['date'][:10]} "
            f"([numbers of every seed](../results/studies/{path.name})). [What the words mean](../lab.md).",
        ]
    return "\n\n".join(parts + related(study)) + "\n"


def commands(study: lab.Study) -> str:
    quick, full = study.cost.get("quick", ""), study.cost.get("full", "")
    lines = [
        (f"heedful run {study.name} --profile quick", f"about {quick}, on data that is built in"),
        (f"heedful run {study.name}", f"as published: {full}"),
    ]
    width = max(len(line) for line, _ in lines)
    return "\n".join(f"{line:<{width}}   # {words}" for line, words in lines)


def settings(study: lab.Study):
    """Name, value in either profile, what it takes, and what its author wrote beside it."""
    remarks, full = comments(study.settings), study.settings()
    quick, all_of_them = dict(getattr(study.settings, "quick", {})), dict(getattr(study.settings, "full", {}))
    ranges = quick.pop("axes", None) or {}
    every = all_of_them.pop("axes", None) or {}
    for field in fields(study.settings):
        value = all_of_them.get(field.name, getattr(full, field.name))
        small = quick.get(field.name, value)
        if field.name in study.axes:
            value = ", ".join(map(str, every.get(field.name, study._choices(field.name))))
            small = ", ".join(map(str, ranges[field.name])) if field.name in ranges else value
        takes = re.sub(
            r"Literal\[(.*)\]", lambda match: match[1].replace('"', "").replace("'", ""), str(field.type)
        )
        takes = re.sub(r"\b(Count|Rate|Share)\b", lambda match: _numbers(getattr(lab, match[1])), takes)
        compared = "compared" if field.name in study.axes else ""
        said = "; ".join(part for part in (compared, remarks.get(field.name, "")) if part)
        shown = ("–" if entry is None else plain(str(entry)) for entry in (value, small))
        yield (f"`{field.name}`", *shown, plain(takes), prose(said))


def _numbers(hint) -> str:
    kind, span = get_args(hint)
    return f"{kind.__name__} of {span}"


def comments(settings: type) -> dict[str, str]:
    """What stands behind the # of each setting."""
    found, name = {}, ""
    text = textwrap.dedent(inspect.getsource(settings))
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.NAME and token.start[1] == 4:
            name = token.string
        elif token.type == tokenize.COMMENT and name and not token.string.startswith("# fmt"):
            found.setdefault(name, token.string.lstrip("# "))
        elif token.type == tokenize.NEWLINE:
            name = ""
    return found


def figures(study: lab.Study):
    tables = {"": getattr(study.settings, "published", {}), **getattr(study.settings, "also", {})}
    for who, published in tables.items():
        for key, numbers in published.items():
            for number, figure in numbers.items():
                value = f"{figure.value:g}" + (f" ± {figure.std:g}" if figure.std is not None else "")
                runs = f", {figure.runs} runs" if figure.runs else ""
                yield (*key, number, value + runs, plain(figure.source or who))


@cache
def _kept() -> list[tuple[Path, dict]]:
    paths = sorted((DOCS / "results" / "studies").glob("*.json"))
    return [(path, json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def results(name: str) -> list[tuple[Path, dict]]:
    """Full runs that are kept with the documentation."""
    return [(path, found) for path, found in _kept() if found["study"] == name]


def related(study: lab.Study) -> list[str]:
    lines = []
    judged = of_claims.of_study(study.name)
    if judged:
        lines.append(
            "- Claims that are judged by it: " + ", ".join(f"[{id}](../claims/{id}.md)" for id in judged)
        )
    trained = of_architectures.of_study(study)
    if trained:
        lines.append(
            "- What it trains: " + ", ".join(f"[{page}](../architectures/{page}.md)" for page in trained)
        )
    module = study.settings.__module__.replace(".", "/")
    lines.append(f"- Its file: `src/{module}.py`")
    return ["## Beside it", "\n".join(lines)]
