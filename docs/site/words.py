"""Markdown from Python things."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence


def cell(text) -> str:
    """Bars would end a cell, and stars or underscores start something."""
    text = "–" if text is None else str(text)
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def plain(text: str) -> str:
    """Text of the registries as it is: what Markdown would read as its own signs is escaped."""
    return re.sub(r"([\\`*_{}\[\]<>#])", r"\\\1", text)


def table(names: Sequence[str], rows: Iterable[Sequence]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(cell(entry) for entry in line)} |" for line in lines)


def code(text: str, language: str = "") -> str:
    return f"```{language}\n{text.strip()}\n```"


def first_words(thing) -> str:
    """The first sentence of a docstring."""
    text = inspect.getdoc(thing) or ""
    return re.sub(r"\s+", " ", text.partition("\n\n")[0]).strip()


def prose(text: str) -> str:
    """A docstring's text: what stands in backticks is code, the rest is as it is."""
    parts = re.split(r"(`+[^`]+`+)", text)
    parts[::2] = [re.sub(r"([\\*_{}\[\]<>#])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def signature(thing) -> inspect.Signature:
    """How it is called; models keep what they were given, and hide their __init__ behind *arguments."""
    found = inspect.signature(thing)
    hidden = all(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in found.parameters.values())
    return (
        inspect.signature(thing.__init__) if inspect.isclass(thing) and found.parameters and hidden else found
    )
