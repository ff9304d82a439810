"""Measure what strategies take on this machine, and fit the constants the planner reads.

A few dozen problems are run by every strategy that accepts them, forward and backward. For each strategy and
direction a non-negative least-squares fit of log ratios gives seconds for a call, a launch, a FLOP and a
byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..graphs import Graph
from .constants import HALF, TERMS, constants, device_name, save_calibration
from .cost import Cost
from .measure import seconds, training_step
from .neighbors import Causal, Everyone, Global, Window, as_neighbors
from .operator import _problem, _run
from .position import Alibi, Relative
from .problem import Problem
from .similarity import Additive, EluKernel, Polynomial, Softmax, Uniform
from .strategies import STRATEGIES, Strategy

UNSURE = 0.6  # median miss of a fit that is not kept: on an idle machine they are below 0.4, 0.57 at worst


@dataclass
class Example:
    """A problem with tensors to run it on."""

    query: Tensor
    key: Tensor
    value: Tensor
    options: dict
    training: bool

    @property
    def problem(self) -> Problem:
        tensors = (self.query, self.key, self.value)
        options = {"position": None, **self.options}
        with torch.set_grad_enabled(self.training):
            problem = _problem(
                *tensors,
                options["similarity"],
                as_neighbors(options["neighbors"]),
                options["position"],
                0.0,
                False,
            )
        assert problem is not None, "an example has queries and keys"
        return problem.replace(gradient=self.training)

    def run(self, way: Strategy) -> Callable[[], object]:
        """A call that runs the strategy once, forward or forward and backward."""
        options = {"position": None, **self.options}
        neighbors = as_neighbors(options["neighbors"])

        def forward(q, k, v):
            return _run(way, q, k, v, options["similarity"], neighbors, options["position"], 0.0)

        if self.training:
            return training_step(forward, [self.query, self.key, self.value])

        def once():
            with torch.no_grad():
                return forward(self.query, self.key, self.value)

        return once


def example(
    similarity: str,
    neighbors: str,
    position: str,
    *,
    heads: int,
    length: int,
    dim: int,
    training: bool,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Example:
    """Build an example from names.

    Similarity is softmax, polynomial, elu, additive or uniform; neighbors everyone, causal, window:W,
    global:W or graph:DEGREE; position none, alibi or relative.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(shape, generator=generator).to(device, dtype)

    kinds = {
        "softmax": Softmax,
        "polynomial": Polynomial,
        "elu": EluKernel,
        "additive": Additive,
        "uniform": Uniform,
    }
    name, _, number = neighbors.partition(":")
    size = int(number or 0)
    if name == "graph":
        ends = torch.randint(length, (2, size * length), generator=generator)
        pattern: object = Graph.from_edges(ends[0], ends[1], nodes=length).to(device)
    else:
        pattern = {
            "everyone": lambda: Everyone(),
            "causal": lambda: Causal(),
            "window": lambda: Window(size),
            "global": lambda: Window(size) | Global([0]),
        }[name]()
    table = {"none": None, "alibi": Alibi(), "relative": Relative(draw(2 * length + 1))}[position]
    wide = 1 if similarity == "additive" else dim
    tensors = draw(1, heads, length, wide), draw(1, heads, length, wide), draw(1, heads, length, dim)
    return Example(
        *tensors, {"similarity": kinds[similarity](), "neighbors": pattern, "position": table}, training
    )


def probes(device: str) -> Iterator[Callable[[], Example]]:
    """What to measure: every kind of pairing at a few sizes each."""
    pairings = [
        ("softmax", "everyone", "none"),
        ("softmax", "causal", "none"),
        ("softmax", "window:32", "none"),
        ("softmax", "everyone", "relative"),
        ("softmax", "window:64", "relative"),
        ("softmax", "global:16", "none"),
        ("softmax", "graph:8", "none"),
        ("polynomial", "everyone", "none"),
        ("polynomial", "causal", "none"),
        ("polynomial", "everyone", "relative"),
        ("polynomial", "window:16", "none"),
        ("polynomial", "graph:8", "none"),
        ("elu", "everyone", "none"),
        ("elu", "causal", "alibi"),
        ("elu", "everyone", "alibi"),
        ("additive", "everyone", "none"),
        ("additive", "graph:16", "none"),
        ("additive", "window:32", "none"),
        ("uniform", "everyone", "none"),
        ("uniform", "causal", "none"),
        ("uniform", "graph:8", "none"),
    ]
    # On a GPU what is short only tells what a launch takes, and half precision has units of its own. Out of
    # time, every kind of problem has been measured at the first of these lengths.
    lengths = {"cpu": (64, 320, 1280, 4096), "cuda": (4096, 256, 16384, 1024)}[device]
    dtypes = {"cpu": (torch.float32,), "cuda": (torch.float32, torch.bfloat16)}[device]
    for turn, length in enumerate(lengths):
        for training in (False, True):
            for dtype in dtypes:
                for place, (similarity, neighbors, position) in enumerate(pairings):
                    heads, dim = ((1, 16), (4, 32), (8, 64), (2, 64))[(place + turn) % 4]
                    yield partial(
                        example, similarity, neighbors, position,
                        heads=heads, length=length, dim=dim, training=training, device=device, dtype=dtype,
                    )  # fmt: skip


@dataclass
class Measurement:
    strategy: str
    direction: str
    cost: Cost
    item: int
    seconds: float


@dataclass
class Calibration:
    """What was measured, the fit, and where it is kept. `str(calibration)` is the table."""

    device: str
    seconds: dict[str, dict[str, list[float]]]
    error: dict[str, float]  # median relative error of the fit, by strategy
    unsure: dict[str, float] = field(default_factory=dict)  # fits that missed by more, left at the defaults
    measurements: list[Measurement] = field(default_factory=list, repr=False)
    path: Path | None = None

    def table(self) -> list[tuple[str, ...]]:
        rows = [("strategy", "direction", *(f"s/{term}" for term in TERMS), "error")]
        for strategy, directions in self.seconds.items():
            for direction, terms in directions.items():
                error = f"{100 * self.error.get(f'{strategy} {direction}', float('nan')):.0f} %"
                rows.append((strategy, direction, *(f"{term:.2e}" for term in terms), error))
        return rows

    def __str__(self) -> str:
        rows = self.table()
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        return "\n".join(
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows
        )


def calibrate(
    *,
    device: str = "cpu",
    budget: float = 60.0,
    progress: Callable[[float, str], None] | None = None,
    keep: bool = True,
) -> Calibration:
    """Measure for about `budget` seconds, fit, and keep the constants for this machine unless `keep=False`.

    On a GPU strategies are compiled before that, for as long again at the most.
    `progress` is called with the share done and what is being measured.
    """
    if budget <= 0:
        raise ValueError(f"calibrate(): budget={budget} seconds; it must be positive.")
    examples = list(probes(device))
    if device == "cuda":
        from .ahead import compile_ahead

        if progress:
            progress(0.0, "compiling")
        compile_ahead(examples, partial(_measurable, device), seconds=budget)
    found, started = [], time.perf_counter()
    for place, make in enumerate(examples):
        if time.perf_counter() - started > budget:
            break
        example_ = make()
        problem = example_.problem
        if progress:
            progress(place / len(examples), str(problem).splitlines()[0])
        for name in _measurable(device, example_):
            call = example_.run(STRATEGIES[name])
            taken = seconds(call, least=0, repeats=1, device=device)
            if taken < 0.05:  # what takes longer is told well enough by one call
                taken = seconds(call, least=0.03, repeats=5, device=device)
            if example_.training:
                found.append((name, "training", problem, taken))
            else:
                found.append((name, "forward", problem, taken))
    if progress:
        progress(1.0, "fitting")
    dtypes = {problem.item: problem.dtype for _, _, problem, _ in found}
    least = {item: 0.5 * _product_seconds(device, getattr(torch, dtype)) for item, dtype in dtypes.items()}
    calibration = _fit(device, found, least)
    if keep:
        calibration.path = save_calibration(
            device, {"seconds": calibration.seconds, "made": time.strftime("%Y-%m-%d")}
        )
    return calibration


def _measurable(device: str, example: Example) -> list[str]:
    """The strategies that are measured on an example: those that can run it, and are done soon."""
    problem, memory = example.problem, min(constants(device).memory, 2.0**31)
    most = {"cpu": 6e9, "cuda": 1e12}[device]  # FLOPs
    found = []
    for name, way in STRATEGIES.items():
        # Uncompiled, flex takes 50 ms to get going: left as shipped.
        if way.accepts(problem) or (name == "flex" and device == "cpu"):
            continue
        forward = way.cost(problem)
        if forward.memory <= memory and forward.flops <= most:
            found.append(name)
    return found


def _product_seconds(device: str, dtype: torch.dtype) -> float:
    """What a FLOP of torch's matrix product takes here: the most that arithmetic can be hurried."""
    size = 512 if device == "cpu" else 2048
    a, b = torch.randn(2, 8, size, size, device=device, dtype=dtype)
    return seconds(lambda: a @ b, least=0.03, repeats=5, device=device) / (2 * 8 * size**3)


def _fit(
    device: str, found: list[tuple[str, str, Problem, float]], least: dict[int, float] | None = None
) -> Calibration:
    """`least` seconds a FLOP, by the bytes of a number: a fit to narrow problems might make it free, and wide
    ones a bargain.
    """
    measurements = []
    forward_seconds = {
        (name, problem.replace(gradient=False)): taken
        for name, kind, problem, taken in found
        if kind == "forward"
    }
    for name, kind, problem, taken in found:
        way, item = STRATEGIES[name], problem.item
        flavor = way.flavor(problem) + (HALF if item == 2 else "")
        if kind == "forward":
            measurements.append(Measurement(flavor, "forward", way.cost(problem), item, taken))
            continue
        before = forward_seconds.get((name, problem.replace(gradient=False)))
        if before is not None:
            rest = max(taken - before, 0.1 * taken)
            measurements.append(Measurement(flavor, "backward", way.backward_cost(problem), item, rest))
    fitted: dict[str, dict[str, list[float]]] = {}
    error: dict[str, float] = {}
    unsure: dict[str, float] = {}
    for flavor in dict.fromkeys(m.strategy for m in measurements):
        for direction in ("forward", "backward"):
            own = [m for m in measurements if m.strategy == flavor and m.direction == direction]
            if len(own) >= len(TERMS):
                terms, miss = _least_squares(own, (least or {}).get(own[0].item, 0.0))
                if miss > UNSURE:
                    unsure[f"{flavor} {direction}"] = miss
                    continue
                fitted.setdefault(flavor, {})[direction] = terms
                error[f"{flavor} {direction}"] = miss
    return Calibration(device_name(device), fitted, error, unsure, measurements)


def _least_squares(own: list[Measurement], least: float = 0.0) -> tuple[list[float], float]:
    """Seconds for each term, by least squares of log(predicted ÷ taken), and the median error.

    No term is negative, and a FLOP takes `least`. Ratios are what a choice between strategies depends on.
    Plain relative errors would favour predicting too little: a prediction cannot be more than 100 % too low.
    The soft loss keeps a disturbed measurement from bending the fit.
    """
    from scipy.optimize import least_squares, nnls

    width = {8: 2.0}  # float64 halves the arithmetic rate
    rows = np.array(
        [[1.0, m.cost.launches, m.cost.flops * width.get(m.item, 1.0), m.cost.bytes] for m in own]
    )
    taken = np.array([m.seconds for m in own])
    relative = rows / taken[:, None]
    scale = np.where(relative.max(0) > 0, relative.max(0), 1.0)
    start, _ = nnls(relative / scale, np.ones(len(own)))
    bottom = np.array([0.0, 0.0, least, 0.0]) * scale
    fit = least_squares(
        lambda terms: np.log(np.maximum(relative / scale @ terms, 1e-12)),
        np.maximum(start + 1e-3 * start.max(), 1.01 * bottom),
        bounds=(bottom, np.inf),
        loss="soft_l1",
        f_scale=0.3,
    )
    terms = fit.x / scale
    return terms.tolist(), float(np.median(np.abs(rows @ terms / taken - 1)))
