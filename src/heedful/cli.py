"""The `heedful` command: it finds the verb, reads its options and runs it.

Nothing here imports torch until a verb runs, so that --help and --version answer at once.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import fields
from typing import Any, get_type_hints

import tyro
from rich.console import Console

from . import __version__
from .commands.attention import Attention
from .commands.bench import Bench
from .commands.calibrate import Calibrate
from .commands.claims import Claims
from .commands.common import UsageError, choose
from .commands.data import Data
from .commands.docs import Docs
from .commands.doctor import Doctor
from .commands.explain import Explain
from .commands.generate import Generate
from .commands.images import Classify, Segment
from .commands.lab import Compare, List, Report, Run
from .commands.studio import Studio
from .commands.tour import Tour

VERBS: dict[str, Any] = {
    "explain": Explain,
    "calibrate": Calibrate,
    "bench": Bench,
    "tour": Tour,
    "list": List,
    "run": Run,
    "compare": Compare,
    "report": Report,
    "generate": Generate,
    "attention": Attention,
    "segment": Segment,
    "classify": Classify,
    "data": Data,
    "claims": Claims,
    "doctor": Doctor,
    "studio": Studio,
    "docs": Docs,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, 1 where something checked does not hold, 2 for a wrong call."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    who, asked = "heedful", None
    try:
        if "--version" in arguments[:1]:
            print(f"heedful {__version__}")
            return 0
        if not arguments or arguments[0] in ("-h", "--help"):
            _help()
            return 0
        verb = choose("verb", arguments[0], VERBS)
        who = f"heedful {verb}"
        asked = _parse(verb, arguments[1:])
        status = asked.run(Console())
        sys.stdout.flush()  # a closed pipe is found here, not on the way out
        return status
    except BrokenPipeError:  # | head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is still to be flushed
        return 141
    except (UsageError, ValueError, TypeError, OSError) as error:
        print(f"{who}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        said = getattr(asked, "stopped", None)
        if said:
            print(f"{who}: {said}", file=sys.stderr)
        return 130


def _help() -> None:
    tyro.extras.subcommand_cli_from_dict(
        VERBS,
        prog="heedful",
        description=f"One attention operator, and a planner that explains itself. Version {__version__}.",
        args=["--help"],
    )


def _parse(verb: str, arguments: Sequence[str]):
    kind = VERBS[verb]
    arguments, rest = _split(arguments)
    if rest is not None and not hasattr(kind, "rest"):
        raise UsageError("takes nothing behind --")
    options, hints = ["--help"], get_type_hints(kind, include_extras=True)
    for field in fields(kind):
        name = _name(field.name, hints[field.name])
        if not _positional(field) and field.name != "rest":
            options += [f"--{name}", f"--no-{name}"] if field.type == "bool" else [f"--{name}"]
    for argument in arguments:
        if argument.startswith("--"):
            try:
                choose("option", argument.split("=")[0].replace("_", "-"), options)
            except UsageError as error:
                if not hasattr(kind, "rest"):
                    raise
                more = f"what is the script's goes behind --, as in: heedful {verb} train.py -- {argument}"
                raise UsageError(f"{error}; {more}") from None
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            parsed = tyro.cli(kind, prog=f"heedful {verb}", args=list(arguments))
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(_first_words(said.getvalue())) from None
    if rest is not None:
        parsed.rest = tuple(rest)
    return parsed


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """What stands before -- is ours, what stands behind it somebody else's."""
    if "--" not in arguments:
        return list(arguments), None
    place = list(arguments).index("--")
    return list(arguments[:place]), list(arguments[place + 1 :])


def _name(field: str, hint) -> str:
    """What a field is called on the command line."""
    given = [part.name for part in getattr(hint, "__metadata__", ()) if getattr(part, "name", None)]
    return given[0] if given else field.replace("_", "-")


def _positional(field) -> bool:
    return "Positional" in str(field.type)


def _first_words(box: str) -> str:
    """What tyro's error box says, up to its first rule, as one line."""
    lines = [line.strip(" │|").strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    body = [line for line in lines if line and not line.startswith(("╭", "╰"))]
    rule = next((place for place, line in enumerate(body) if set(line) <= {"─"}), len(body))
    said = " ".join(body[:rule]) or box.strip()
    missing = re.findall(r"([A-Z]+) (.+?)\.? \(required\)", said)
    return f"it needs {', '.join(f'{name} ({what})' for name, what in missing)}" if missing else said
