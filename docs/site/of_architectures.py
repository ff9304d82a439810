"""What the library has of an architecture, put below its page: classes, signatures, studies that train it."""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path

from words import first_words, plain, signature, table

from heedful import models, nn

FOLDER = Path(__file__).resolve().parents[1] / "architectures"
# Files of heedful.models have a page of their own name; these go with others, the rest where it is told.
PAGE = {
    "models.exporting": "gpt",
    "models.graph_exporting": "gcn",
    "nn.attention": "attention",
    "nn.transformer": "attention",
    "nn.positions": "attention",
    "nn.convolution": "convnet",
    "nn.norms": "norms",
    "nn.patches": "vit",
    "nn.pooling": "convolution_as_attention",
    "nn.recurrent": "rnn",
    "nn.relative_convolution": "convolution_as_attention",
    "nn.relative_plane": "convolution_as_attention",
    "nn.graph.conv": "gcn",
    "nn.graph.features": "gcn",
    "nn.graph.gat": "gat",
    "nn.graph.gatv2": "gat",
    "nn.graph.gcn": "gcn",
    "nn.graph.message_passing": "mpnn",
    "nn.graph.positions": "graph_transformer",
    "nn.graph.readout": "mpnn",
    "nn.graph.transformer": "graph_transformer",
}


@cache
def homes() -> dict[str, list[tuple[str, object]]]:
    """Every public name of models and layers, by the page it belongs to."""
    found: dict[str, list[tuple[str, object]]] = {}
    for room in (models, nn):
        short = room.__name__.removeprefix("heedful.")
        for name in room.__all__:
            thing = getattr(room, name)
            module = thing.__module__.removeprefix("heedful.")
            page = PAGE.get(module, module.removeprefix("models."))
            page = page if (FOLDER / f"{page}.md").exists() else _telling(name)
            found.setdefault(page, []).append((f"heedful.{short}.{name}", thing))
    return found


def _telling(name: str) -> str:
    """The page that has most to say about a name; a test asks that there is one."""
    told = {
        page.stem: len(re.findall(rf"\b{name}\b", page.read_text(encoding="utf-8")))
        for page in FOLDER.glob("*.md")
    }
    return max(told, key=lambda page: told[page])


def section(page: str) -> str:
    rows = [
        (
            f"[`{name.removeprefix('heedful.')}`](../reference/{name.split('.')[1]}.md#{name})",
            _takes(thing),
            plain(first_words(thing)),
        )
        for name, thing in homes().get(page, [])
    ]
    parts = ["", "## In the library", table(["name", "takes", "is"], rows)] if rows else [""]
    used = [name for name in _studies() if page in of_study(_studies()[name])]
    if used:
        parts.append(
            "Studies that train it: " + ", ".join(f"[{name}](../studies/{name}.md)" for name in used) + "."
        )
    return "\n\n".join(parts) + "\n"


def _takes(thing) -> str:
    """Its arguments, the defaults of those that have one."""
    shown = []
    for name, parameter in signature(thing).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        default = parameter.default
        shown.append(
            name if default is parameter.empty else f"{name}={default!r}" if _short(default) else f"{name}=…"
        )
    return ", ".join(f"`{word}`" for word in shown)


def _short(value) -> bool:
    return isinstance(value, (int, float, str, bool, type(None))) and len(repr(value)) < 20


def _studies():
    import of_studies

    return of_studies.studies()


def of_study(study) -> list[str]:
    """Pages of the models that a study's file names."""
    text = inspect.getsource(inspect.getmodule(study.settings))
    named = " ".join(re.findall(r"from \.\.models import ([^(\n]+|\([^)]*\))", text))
    words = set(re.findall(r"\w+", named))
    return [
        page for page, names in homes().items() if any(name.rpartition(".")[2] in words for name, _ in names)
    ]
