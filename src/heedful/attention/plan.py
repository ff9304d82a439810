"""The planner: which strategy, why not the others, what each would cost. `print(plan)` is the explanation."""

from __future__ import annotations

import html
import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from math import inf

import torch

from .constants import constants
from .cost import Cost
from .problem import Problem
from .strategies import STRATEGIES, Strategy


@dataclass(frozen=True)
class Candidate:
    """One strategy's answer to a problem: a reason why not, or a cost and a time."""

    name: str
    reason: str | None = None
    forward: Cost | None = None
    backward: Cost | None = None
    seconds: float | None = None  # estimated, forward and, when training, backward
    passed_over: str | None = None  # why a slower one was chosen before it
    measured: float | None = None
    measured_memory: float | None = None


@dataclass(frozen=True)
class Plan:
    """What `explain` returns: the problem, the chosen strategy, and every candidate, fastest first.

    >>> import torch, heedful
    >>> x = torch.empty(1, 8, 1024, 64, device="meta")
    >>> heedful.explain(x, x, x).rejected["factored"]
    'Softmax() has no finite feature map'
    """

    problem: Problem
    strategy: str
    candidates: tuple[Candidate, ...]
    device: str
    calibrated: bool

    @property
    def chosen(self) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.name == self.strategy)

    @property
    def rejected(self) -> dict[str, str]:
        """Why each strategy that cannot run cannot."""
        return {candidate.name: candidate.reason for candidate in self.candidates if candidate.reason}

    def rows(self) -> list[tuple[str, ...]]:
        """The table: strategy, time, FLOPs, traffic, memory, measured time and memory, or why not."""
        analyzed = any(candidate.measured is not None for candidate in self.candidates)
        heading = ["strategy", "estimate", "FLOPs", "traffic", "memory"] + ["measured", "peak"] * analyzed
        rows = [tuple(heading)]
        for candidate in self.candidates:
            name = ("→ " if candidate.name == self.strategy else "  ") + candidate.name
            cost = candidate.forward
            if candidate.reason or cost is None:
                rows.append((name, candidate.reason or "–"))
                continue
            if candidate.backward is not None:
                cost = cost + candidate.backward
            row = [
                name,
                show_seconds(candidate.seconds),
                show_count(cost.flops),
                show_bytes(cost.bytes),
                show_bytes(cost.memory),
            ]
            if analyzed:
                row += [show_seconds(candidate.measured), show_bytes(candidate.measured_memory)]
            rows.append(tuple(row))
        return rows

    def notes(self) -> list[str]:
        """What was passed over, though by its estimate faster, and why."""
        return [f"{c.name} is passed over: {c.passed_over}." for c in self.candidates if c.passed_over]

    def __str__(self) -> str:
        rows = self.rows()
        table = [row for row in rows if len(row) > 2]
        widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
        name_width = max(len(row[0]) for row in rows)
        lines = str(self.problem).splitlines()
        origin = "calibrated" if self.calibrated else "default constants (run: heedful calibrate)"
        lines.append(f"on {self.device}, {origin}")
        lines.append("")
        for row in rows:
            if len(row) == 2:
                lines.append(f"{row[0]:<{name_width}}  {row[1]}")
            else:
                cells = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
                lines.append(f"{row[0]:<{name_width}}  " + "  ".join(cells))
        lines += [f"\n{note}" for note in self.notes()]
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        heading, *rows = self.rows()
        columns = len(heading)
        cells = "".join(
            f"<th style='text-align:{'left' if not n else 'right'}'>{c}</th>" for n, c in enumerate(heading)
        )
        body = []
        for row in rows:
            chosen = row[0].startswith("→")
            style = "font-weight:bold" if chosen else "opacity:.65" if len(row) == 2 else ""
            first, *rest = (html.escape(cell) for cell in row)
            name = f"<td style='text-align:left'>{first}</td>"
            if len(row) == 2:
                other = f"<td colspan='{columns - 1}' style='text-align:left'>{rest[0]}</td>"
            else:
                other = "".join(f"<td style='text-align:right'>{cell}</td>" for cell in rest)
            body.append(f"<tr style='{style}'>{name}{other}</tr>")
        about = html.escape(str(self.problem)).replace("\n", "<br>")
        machine = html.escape(self.device) + (", calibrated" if self.calibrated else ", default constants")
        notes = "".join(f"<p><small>{html.escape(note)}</small></p>" for note in self.notes())
        table = f"<table><tr>{cells}</tr>{''.join(body)}</table>"
        return f"<p>{about}<br><small>{machine}</small></p>{table}{notes}"

    def to_json(self) -> str:
        return json.dumps(_spell_infinity(asdict(self)), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        data = _read_infinity(json.loads(text))
        data["problem"] = Problem.from_dict(data["problem"])
        candidates = []
        for entry in data["candidates"]:
            costs = {name: Cost(**entry[name]) if entry[name] else None for name in ("forward", "backward")}
            candidates.append(Candidate(**{**entry, **costs}))
        return cls(**{**data, "candidates": tuple(candidates)})


def _spell_infinity(thing):
    """JSON has no infinity, and a window's far side often is: "inf" and "-inf" stand for it."""
    if isinstance(thing, dict):
        return {name: _spell_infinity(entry) for name, entry in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [_spell_infinity(entry) for entry in thing]
    return str(thing) if thing in (inf, -inf) else thing


def _read_infinity(thing):
    if isinstance(thing, dict):
        return {name: _read_infinity(entry) for name, entry in thing.items()}
    if isinstance(thing, list):
        return [_read_infinity(entry) for entry in thing]
    return float(thing) if thing in ("inf", "-inf") else thing


def make_plan(problem: Problem, strategy: str | Strategy = "auto") -> Plan:
    """Choose among all strategies, or hold one to its word."""
    if isinstance(strategy, Strategy):
        return _make_plan(problem, strategy, torch.get_num_threads())
    if not isinstance(strategy, str) or (strategy != "auto" and strategy not in STRATEGIES):
        raise ValueError(
            f"attend(): strategy={strategy!r} is unknown; takes 'auto' or one of {', '.join(STRATEGIES)}."
        )
    return _make_plan(problem, strategy, torch.get_num_threads())


@lru_cache(maxsize=8192)
def _make_plan(problem: Problem, strategy: str | Strategy, threads: int) -> Plan:
    device = constants(problem.device)
    known = dict(STRATEGIES)
    if isinstance(strategy, Strategy):
        known[strategy.name] = strategy
        strategy = strategy.name
    candidates = [_consider(way, problem, device, forced=name == strategy) for name, way in known.items()]
    candidates.sort(key=lambda candidate: (candidate.reason is not None, candidate.seconds or 0.0))
    able = [candidate.name for candidate in candidates if candidate.reason is None]
    if strategy == "auto":
        if not able:
            reasons = "; ".join(f"{candidate.name}: {candidate.reason}" for candidate in candidates)
            raise ValueError(f"attend(): no strategy can run this. {reasons}.")
        passed = _passed_over(candidates[: len(able)], known, problem)
        candidates[: len(passed)] = passed
        chosen = able[len(passed)]
    else:
        reason = next(candidate.reason for candidate in candidates if candidate.name == strategy)
        if reason:
            raise ValueError(
                f"attend(): strategy={strategy!r} refuses: {reason}. "
                f"These would do: {', '.join(able) or 'none'}."
            )
        chosen = strategy
    return Plan(problem, chosen, tuple(candidates), device.device, device.calibrated)


def _consider(way: Strategy, problem: Problem, device, forced: bool) -> Candidate:
    if problem.exact and not way.exact:
        return Candidate(way.name, "approximates; pass exact=False to admit it")
    reason = way.accepts(problem)
    if reason:
        return Candidate(way.name, reason)
    forward = way.cost(problem)
    backward = way.backward_cost(problem) if problem.gradient else None
    memory = max(forward.memory, backward.memory if backward else 0.0)
    if memory > device.memory and not forced:
        return Candidate(way.name, f"would hold {show_bytes(memory)} of {show_bytes(2 * device.memory)}")
    seconds = device.time(way.flavor(problem), "forward", forward, problem.item)
    if backward:
        seconds += device.time(way.flavor(problem), "backward", backward, problem.item)
    return Candidate(way.name, None, forward, backward, seconds)


def _passed_over(able: list[Candidate], known: dict[str, Strategy], problem: Problem) -> list[Candidate]:
    """The fastest, as long as they give way to another that can run."""
    names, passed = {candidate.name for candidate in able}, []
    for candidate in able[:-1]:
        way = known[candidate.name].gives_way(problem)
        if way is None or way[0] not in names:
            break
        passed.append(replace(candidate, passed_over=way[1]))
    return passed


def forget_plans() -> None:
    _make_plan.cache_clear()
    for forget in _FORGET:
        forget()


_FORGET: list = []  # callers that keep chosen strategies of their own


def with_measurements(plan: Plan, measured: dict[str, tuple[float, float]]) -> Plan:
    candidates = tuple(
        replace(c, measured=measured[c.name][0], measured_memory=measured[c.name][1])
        if c.name in measured
        else c
        for c in plan.candidates
    )
    return replace(plan, candidates=candidates)


def show_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def show_count(number: float) -> str:
    for unit, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def show_bytes(number: float | None) -> str:
    if number is None:
        return "–"
    for unit, size in (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g} B"
