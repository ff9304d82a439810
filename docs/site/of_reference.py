"""The reference: a page a room, every public name from its docstring; and every verb of the command line."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import cached_property
from typing import get_type_hints

import words
from words import code, first_words, plain, prose, table

from heedful.cli import VERBS, _name, _positional

# The public rooms, in the order of the house.
ROOMS = (
    "heedful",
    "heedful.graphs",
    "heedful.attention",
    "heedful.nn",
    "heedful.models",
    "heedful.data",
    "heedful.training",
    "heedful.probes",
    "heedful.doctor",
    "heedful.lab",
    "heedful.claims",
    "heedful.interop.pyg",
    "heedful.interop.multihead",
    "heedful.interop.huggingface",
)


def pages() -> dict[str, str]:
    return {
        "reference/index.md": index(),
        "reference/commands.md": commands(),
        **{f"reference/{short(room)}.md": page(room) for room in ROOMS},
    }


def short(room: str) -> str:
    return room.removeprefix("heedful.").replace(".", "-")


def public(room: str) -> list[str]:
    """What a room offers: its __all__, or what it defines itself."""
    module = importlib.import_module(room)
    own = [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_") and getattr(thing, "__module__", None) == room
    ]
    return list(getattr(module, "__all__", own))


def told(room: str) -> list[str]:
    """Names that stand on a room's page; those of the operator stand where they are imported from."""
    if room in ("heedful.attention", "heedful.graphs"):
        return [name for name in public(room) if name not in public("heedful")]
    return public(room)


def index() -> str:
    rows = [
        (f"[`{room}`]({short(room)}.md)", prose(first_words(importlib.import_module(room))), len(told(room)))
        for room in ROOMS
    ]
    return "\n\n".join(
        [
            "# Reference",
            "Every public name, from its docstring; the examples there are run as tests. "
            "[The command line](commands.md) has a page of its own.",
            table(["room", "is", "names"], rows),
        ]
    )


def page(room: str) -> str:
    module = importlib.import_module(room)
    parts = [f"# {room}", *docstring(module.__doc__)]
    if len(told(room)) < len(public(room)):
        parts.append(f"What `heedful` itself offers of it is [there](heedful.md); `{room}` adds:")
    for name in told(room):
        parts += entry(f"{room}.{name}", getattr(module, name))
    return "\n\n".join(parts) + "\n"


def entry(name: str, thing) -> Iterator[str]:
    """A function, a class with what it can do, or a value."""
    last = name.rpartition(".")[2]
    yield f"## {plain(last)} {{ #{name} }}"
    if not callable(thing):
        yield f"`{last}`: " + (
            f"`{thing!r}`" if len(repr(thing)) < 90 else f"{type(thing).__name__} of {len(thing)}"
        )
        return
    yield code(signature(last, thing), "py")
    yield from docstring(inspect.getdoc(thing) if last not in _silent(thing) else None)
    if inspect.isclass(thing):
        for member, what in methods(thing):
            yield f"### {plain(last)}.{plain(member)} {{ #{name}.{member} }}"
            if not isinstance(what, (property, cached_property)):
                yield code(signature(member, what), "py")
            yield from docstring(inspect.getdoc(what))


def _silent(thing) -> tuple[str, ...]:
    """A dataclass without a docstring gets its signature for one, which stands there already."""
    text = inspect.getdoc(thing) or ""
    return (thing.__name__,) if text.startswith(f"{thing.__name__}(") else ()


def methods(thing: type) -> Iterator[tuple[str, object]]:
    """What a class defines itself and explains; `forward` is its call."""
    for name, what in vars(thing).items():
        function = what.__func__ if isinstance(what, (classmethod, staticmethod)) else what
        kinds = (property, cached_property)
        if name.startswith("_") or not (inspect.isfunction(function) or isinstance(function, kinds)):
            continue
        if inspect.getdoc(function):
            yield name, function


def signature(name: str, thing) -> str:
    try:
        found = words.signature(thing)
    except (TypeError, ValueError):
        return f"{name}(…)"
    bare = [parameter.replace(annotation=parameter.empty) for parameter in found.parameters.values()]
    bare = [parameter for parameter in bare if parameter.name not in ("self", "cls")]
    line = f"{name}{found.replace(parameters=bare, return_annotation=found.empty)}"
    line = re.sub(r"<function (?:\w+\.)*(?:<locals>\.)?(\w+|<lambda>) at 0x\w+>", r"\1", line)
    line = re.sub(r"<(?:object|factory)[^>]*>", "…", line)
    if len(line) <= 90:
        return line
    return re.sub(
        r"\((.*)\)$",
        lambda match: (
            "(\n"
            + textwrap.fill(
                match[1], 86, initial_indent="    ", subsequent_indent="    ", break_long_words=False
            )
            + "\n)"
        ),
        line,
    )


def docstring(text: str | None) -> Iterator[str]:
    """Paragraphs as they are; examples and what is indented as code; arguments as a list."""
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text or "")):
        if not block.strip():
            continue
        if block.startswith(">>>"):
            yield code(block, "pycon")
        elif re.match(r"(Args|Returns|Raises):\n", block):
            title, _, rest = block.partition("\n")
            yield {"Args:": "Takes", "Returns:": "Returns", "Raises:": "Raises"}[title] + ":"
            yield "\n".join(_arguments(inspect.cleandoc(rest)))
        elif all(line.startswith("    ") for line in block.splitlines()):
            yield code(
                textwrap.dedent(block), "py" if re.match(r" *(@|def |class |import |from )", block) else ""
            )
        elif re.search(r"^(@\w+\(|class |def )", block, re.M):
            yield code(block, "py")
        elif re.match(r"[-*] ", block) or re.search(r"^\S.*:\n?( {2,}\S.*\n?)+", block):
            yield code(block)
        else:
            yield from _paragraph(block)


def _paragraph(block: str) -> Iterator[str]:
    """Prose, and lines among it that are set apart: formulas, examples."""
    for part in re.split(r"(?m)((?:^(?:    .*|>>> .*(?:\n(?!\n).*)*)\n?)+)", block):
        if part.startswith(">>>"):
            yield code(part, "pycon")
        elif part.startswith("    "):
            yield code(textwrap.dedent(part))
        elif part.strip():
            yield prose(part.strip())


def _arguments(text: str) -> Iterator[str]:
    for line in re.split(r"\n(?=\S)", text):
        names, colon, said = re.sub(r"\s+", " ", line).partition(": ")
        yield f"- `{names}`: {prose(said)}" if colon else f"- {prose(names)}"


def commands() -> str:
    parts = [
        "# The command line",
        "Every verb has `--help`. The exit status is 0; 1 where something that was checked does not hold; "
        "2 for a call that cannot be understood, with the reason.",
    ]
    for verb, kind in VERBS.items():
        parts += [f"## heedful {verb}", prose(re.sub(r"\s*\n\s*", " ", inspect.getdoc(kind) or ""))]
        rows = list(options(kind))
        if rows:
            parts.append(table(["option", "unless given", "is"], rows))
    return "\n\n".join(parts) + "\n"


def options(kind) -> Iterator[tuple[str, str, str]]:
    """Each field with its default and what stands below it in the source."""
    source, hints = inspect.getsource(kind), get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        said = re.search(rf'^    {field.name}: .*\n    """(.*?)"""', source, re.M | re.S)
        if said is None:
            continue  # what the parser fills in: the rest behind --
        name = _name(field.name, hints[field.name])
        word = f"`{name.upper()}`" if _positional(field) else f"`--{name}`"
        yield word, _default(field.default), prose(re.sub(r"\s+", " ", said[1]))


def _default(value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value in (MISSING, None, (), "") else f"`{value}`"
