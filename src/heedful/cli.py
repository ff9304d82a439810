"""The `heedful` command: one dataclass a verb, its fields the options, its docstring the help.

Nothing here imports torch until a verb runs, so that --help and --version answer at once.
"""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from . import __version__
from .phrases import suggestion

Number = Annotated[int | None, tyro.conf.arg(metavar="INT")]


class UsageError(Exception):
    """What was asked for is not on offer."""


@dataclass
class Explain:
    """Which way attend() would compute a call of this shape, what each way costs, and why not the others."""

    queries: int = 1024
    """How many listen."""
    keys: Number = None
    """How many speak; as many as listen unless given."""
    dim: Number = None
    """Width of queries and keys: 64, or 1 for additive."""
    value_dim: Number = None
    """Width of values: that of the keys, or 64 for additive."""
    heads: int = 8
    """Heads of the queries."""
    key_heads: Number = None
    """Heads of keys and values; as many unless given."""
    batch: int = 1
    """How many sequences, or graphs of one structure."""
    similarity: str = "softmax"
    """softmax, argmax, uniform, additive(0.2), elu, polynomial(degree=2, constant=1) or random(256)."""
    degree: Number = None
    """Degree of a polynomial written without one."""
    neighbors: str = "everyone"
    """everyone, causal, window(256), segments(512, 512) or global(0, 1), combined with & and |."""
    window: Number = None
    """Width of a window written without one."""
    edges: Number = None
    """Listen along a random graph of so many edges; further neighbors must hold too."""
    position: str = "none"
    """none, relative, alibi, rotary or t5."""
    dtype: str = "float32"
    """float64, float32, bfloat16 or float16."""
    device: str = "cpu"
    """Where the tensors would be: cpu or cuda."""
    training: bool = False
    """Plan forward and backward."""
    dropout: float = 0.0
    """Share of weights dropped while training."""
    approximate: bool = False
    """Admit ways that approximate."""
    strategy: str = "auto"
    """Hold the planner to one way."""
    analyze: bool = False
    """Run every way that can, and show its time and memory."""
    json: bool = False
    """Print the plan as JSON."""

    def run(self, console: Console) -> int:
        import torch

        from .attention import explain
        from .attention.strategies import STRATEGIES
        from .display import show_plan

        _choose("--strategy", self.strategy, ["auto", *STRATEGIES])
        _choose("--dtype", self.dtype, ["float64", "float32", "bfloat16", "float16"])
        _choose("--device", self.device, ["cpu", "cuda"])
        for name in ("queries", "keys", "dim", "value_dim", "heads", "key_heads", "batch"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise UsageError(f"--{name.replace('_', '-')} is {size}; it must be 1 or more")
        if self.analyze and self.device == "cuda" and not torch.cuda.is_available():
            raise UsageError("--analyze on cuda needs a GPU, and torch sees none here")
        similarity = self._similarity()
        neighbors = self._neighbors()
        keys, heads = self.keys or self.queries, self.heads
        narrow = similarity.kind == "additive"
        dim = self.dim or (1 if narrow else 64)
        value_dim = self.value_dim or (64 if narrow else dim)

        def meta(heads: int, length: int, width: int):
            return torch.empty(
                self.batch,
                heads,
                length,
                width,
                dtype=getattr(torch, self.dtype),
                device="meta",
                requires_grad=self.training,
            )

        plan = explain(
            meta(heads, self.queries, dim),
            meta(self.key_heads or heads, keys, dim),
            meta(self.key_heads or heads, keys, value_dim),
            similarity=similarity,
            neighbors=neighbors,
            position=self._position(keys),
            dropout=self.dropout,
            strategy=self.strategy,
            exact=not self.approximate,
            analyze=self.analyze,
            device=self.device,
        )
        if self.json:
            print(plan.to_json())
        else:
            show_plan(plan, console)
        return 0

    def _similarity(self):
        from .phrases import parse_similarity

        similarity = parse_similarity(self.similarity, degree=self.degree)
        if self.degree is not None and similarity.degree != self.degree:
            raise UsageError(
                f"--degree {self.degree} goes with --similarity polynomial, not {self.similarity}"
            )
        return similarity

    def _neighbors(self):
        import torch

        from .graphs import Graph
        from .phrases import parse_neighbors

        if self.window is not None and "window" not in self.neighbors:
            raise UsageError(f"--window {self.window} goes with --neighbors window, not {self.neighbors!r}")
        pattern = parse_neighbors(self.neighbors, width=self.window)
        if self.edges is None:
            return pattern
        if self.edges < 0:
            raise UsageError(f"--edges is {self.edges}; it must not be negative")
        generator = torch.Generator().manual_seed(0)
        keys = self.keys or self.queries
        source, target = (torch.randint(n, (self.edges,), generator=generator) for n in (keys, self.queries))
        graph = Graph.from_edges(source, target, sources=keys, targets=self.queries)
        return graph if self.neighbors == "everyone" else graph & pattern

    def _position(self, keys: int):
        import torch

        from .attention import Alibi, Relative, Rotary, T5Buckets

        longest = max(self.queries, keys)
        makers: dict[str, Callable] = {
            "none": lambda: None,
            "relative": lambda: Relative(self._learned(torch.zeros(self.heads, 2 * longest - 1))),
            "alibi": Alibi,
            "rotary": Rotary,
            "t5": lambda: T5Buckets(self._learned(torch.zeros(self.heads, 32))),
        }
        return makers[_choose("--position", self.position, makers)]()

    def _learned(self, table):
        return table.to(self.device if self.analyze else "cpu").requires_grad_(self.training)


@dataclass
class Calibrate:
    """Measure what work costs on this machine, and keep it: plans become predictions."""

    device: str = "cpu"
    """cpu or cuda."""
    seconds: float = 60.0
    """About how long to measure."""
    show: bool = False
    """Only print the constants in use."""
    forget: bool = False
    """Delete what was measured, and go back to the defaults that ship."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        from .attention import constants

        _choose("--device", self.device, ["cpu", "cuda"])
        if self.forget:
            path = constants.calibration_file()
            there = path.exists()
            path.unlink(missing_ok=True)
            constants.forget()
            if self.json:
                print(json.dumps({"path": str(path), "forgotten": there}))
            else:
                console.print(
                    f"forgot {path}" if there else f"nothing to forget: there is no {path}", soft_wrap=True
                )
            return 0
        return self._show(console) if self.show else self._measure(console)

    def _show(self, console: Console) -> int:
        from .attention.constants import calibration_file, constants
        from .display import show_rows

        known = constants(self.device)
        kept = str(calibration_file()) if known.calibrated else None
        if self.json:
            print(json.dumps({"device": known.device, "path": kept, "seconds": known.seconds}))
            return 0
        rows = []
        for strategy, directions in known.seconds.items():
            for direction, (base, launch, flop, byte) in directions.items():
                rates = {"GFLOP/s": 1e-9 / flop if flop else None, "GB/s": 1e-9 / byte if byte else None}
                overheads = {"base µs": base * 1e6, "launch µs": launch * 1e6}
                rows.append({"strategy": strategy, "pass": direction, **overheads, **rates})
        show_rows(rows, console, f"{known.device}: {kept or 'defaults that ship (run: heedful calibrate)'}")
        return 0

    def _measure(self, console: Console) -> int:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        from .attention.calibrate import calibrate
        from .display import show_rows

        if not self.seconds > 0:
            raise UsageError(f"--seconds is {self.seconds}; it must be more than 0")
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("calibrating", total=1.0)

            def progress(share: float, what: str) -> None:
                bar.update(task, completed=share, description=what)

            found = calibrate(device=self.device, budget=self.seconds, progress=progress)
        heading, *body = found.table()
        rows = [dict(zip(heading, row, strict=True)) for row in body]
        if self.json:
            print(json.dumps({"path": str(found.path), "rows": _plain(rows)}, allow_nan=False))
            return 0
        show_rows(rows, console)
        console.print(f"kept in {found.path}", soft_wrap=True)
        return 0


@dataclass
class Bench:
    """Run benchmarks: every one, or those named."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which; see --list."""
    quick: bool = False
    """Small sizes: seconds instead of minutes."""
    device: str = "cpu"
    """cpu or cuda."""
    json: Path | None = None
    """Also write the results to this file; - for the standard output, and no tables."""
    list: bool = False
    """Only say which benchmarks there are."""

    def run(self, console: Console) -> int:
        from . import bench
        from .display import show_rows

        silent = self.json == Path("-")
        if self.list:
            rows = [{"name": name, "title": entry.title} for name, entry in bench.BENCHMARKS.items()]
            self._write(rows)
            if not silent:
                show_rows(rows, console)
            return 0
        for name in self.names:
            _choose("benchmark", name, bench.BENCHMARKS)
        results = []
        for result in bench.run(list(self.names), quick=self.quick, device=self.device):
            results.append(result.to_dict())
            if not silent:
                show_rows(result.rows, console, f"{result.name}: {result.title}")
                console.print(result.verdict, style="bold", highlight=False, soft_wrap=True)
                console.print()
        self._write(results)
        return 0

    def _write(self, results) -> None:
        if self.json is None:
            return
        text = json.dumps(_plain(results), indent=1, allow_nan=False)
        if self.json == Path("-"):
            print(text)
        else:
            self.json.parent.mkdir(parents=True, exist_ok=True)
            self.json.write_text(text + "\n")


@dataclass
class Tour:
    """The operator in a minute: what it equals, how it plans, where one way overtakes another."""

    output: Path = Path("runs/tour")
    """Where the figure goes."""
    json: bool = False
    """Print what was found as JSON."""

    def run(self, console: Console) -> int:
        from .tour import tour

        found = tour(self.output, Console(stderr=True, quiet=True) if self.json else console)
        if self.json:
            print(json.dumps(_plain(found.to_dict()), allow_nan=False))
        return 0 if found.holds else 1


VERBS: dict[str, Any] = {"explain": Explain, "calibrate": Calibrate, "bench": Bench, "tour": Tour}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0, 1 where something checked does not hold, 2 for a wrong call."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    who = "heedful"
    try:
        if "--version" in arguments[:1]:
            print(f"heedful {__version__}")
            return 0
        if not arguments or arguments[0] in ("-h", "--help"):
            _help()
            return 0
        verb = _choose("verb", arguments[0], VERBS)
        who = f"heedful {verb}"
        return _parse(verb, arguments[1:]).run(Console())
    except (UsageError, ValueError, TypeError, OSError) as error:
        print(f"{who}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
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
    options = ["--help"]
    for field in fields(kind):
        name = field.name.replace("_", "-")
        if field.name != "names":
            options += [f"--{name}", f"--no-{name}"] if field.type == "bool" else [f"--{name}"]
    for argument in arguments:
        if argument.startswith("--"):
            _choose("option", argument.split("=")[0].replace("_", "-"), options)
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(kind, prog=f"heedful {verb}", args=list(arguments))
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(_first_words(said.getvalue())) from None


def _first_words(box: str) -> str:
    """What tyro's error box says, up to its first rule, as one line."""
    lines = [line.strip(" │|").strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    body = [line for line in lines if line and not line.startswith(("╭", "╰"))]
    rule = next((place for place, line in enumerate(body) if set(line) <= {"─"}), len(body))
    return " ".join(body[:rule]) or box.strip()


def _choose(what: str, given: str, known) -> str:
    if given in known:
        return given
    shown = [name for name in known if not name.startswith("--no-")]
    raise UsageError(f"unknown {what} {given!r}{suggestion(given, known) or '.'} Known: {', '.join(shown)}")


def _plain(thing):
    """Ready for strict JSON: numbers that JSON lacks become null."""
    if isinstance(thing, dict):
        return {str(key): _plain(entry) for key, entry in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [_plain(entry) for entry in thing]
    if isinstance(thing, float) and not math.isfinite(thing):
        return None
    return thing if isinstance(thing, (str, int, float, bool, type(None))) else str(thing)
