"""A minute with the operator: what it equals, how it plans, and where one way to compute it wins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.rule import Rule
from torch import Tensor
from torch.nn import functional as F

from .attention import (
    Additive,
    Alibi,
    Causal,
    Everyone,
    Plan,
    Polynomial,
    Relative,
    Softmax,
    Uniform,
    Window,
    attend,
    explain,
    step,
)
from .display import show_plan, show_rows
from .graphs import Graph

TOLERANCE = 1e-9  # everything below is computed in float64
LENGTHS = [2**power for power in range(5, 14)]
HEADS, DIM = 4, 16


@dataclass(frozen=True)
class Equivalence:
    """Two ways to write one thing, and how far apart they come out, relative to the larger of the two."""

    claim: str
    way: str  # the strategy that computed the left side
    residual: float

    @property
    def holds(self) -> bool:
        return self.residual < TOLERANCE


@dataclass(frozen=True)
class Crossover:
    """Time against length for two strategies, measured and predicted, and from where on the second wins."""

    lengths: list[int]
    measured: dict[str, list[float]]
    predicted: dict[str, list[float]]
    measured_at: float | None
    predicted_at: float | None
    calibrated: bool


@dataclass(frozen=True)
class Tour:
    equivalences: list[Equivalence]
    plans: list[Plan]
    crossover: Crossover
    figure: Path
    seconds: float

    @property
    def holds(self) -> bool:
        return all(entry.holds for entry in self.equivalences)

    def to_dict(self) -> dict:
        return {
            "holds": self.holds,
            "equivalences": [{**asdict(entry), "holds": entry.holds} for entry in self.equivalences],
            "plans": [str(plan) for plan in self.plans],
            "crossover": asdict(self.crossover),
            "figure": str(self.figure),
            "seconds": self.seconds,
        }


def tour(output: Path, console: Console) -> Tour:
    """Everything in order, printed as it is found. The figure goes to `output`, as PNG and SVG."""
    start = perf_counter()
    console.print(Rule("One operator: what it equals"))
    found = equivalences()
    rows = [
        {
            "": "✓" if entry.holds else "✗",
            "equals": entry.claim,
            "computed by": entry.way,
            "residual": entry.residual,
        }
        for entry in found
    ]
    show_rows(rows, console)

    console.print(Rule("One planner: which way, and why not the others"))
    shown = plans()
    for plan in shown:
        show_plan(plan, console)
        console.print()

    console.print(Rule("Where one way overtakes another"))
    crossing = crossover()
    figure = draw(crossing, output)
    table = [
        {
            "N": length,
            **{f"{way} ms": 1e3 * crossing.measured[way][place] for way in crossing.measured},
            "faster": min(crossing.measured, key=lambda way: crossing.measured[way][place]),
        }
        for place, length in enumerate(crossing.lengths)
    ]
    show_rows(table, console)

    result = Tour(found, shown, crossing, figure, perf_counter() - start)
    console.print(Rule("Scoreboard"))
    for line in scoreboard(result):
        console.print(line, highlight=False, soft_wrap=True)
    return result


def scoreboard(tour: Tour) -> list[str]:
    good, worst = (
        sum(entry.holds for entry in tour.equivalences),
        max(entry.residual for entry in tour.equivalences),
    )
    measured, predicted = tour.crossover.measured_at, tour.crossover.predicted_at
    known = "calibrated" if tour.crossover.calibrated else "default constants"
    return [
        f"{good} of {len(tour.equivalences)} equivalences hold; the largest residual is {worst:.1e}",
        f"factoring beats pairs from {_length(measured)}; the planner says {_length(predicted)} ({known})",
        f"the figure is {tour.figure} (and .svg); all of it took {tour.seconds:.0f} s",
        "",
        "Next steps",
        '  heedful explain --queries 65536 --neighbors "causal & window(256)"    a plan for your own shapes',
        "  heedful calibrate                                                     estimates for this machine",
        "  heedful bench --quick                                                 how it compares",
        '  python -c "import heedful; help(heedful.attend)"                      the operator',
    ]


def _length(length: float | None) -> str:
    return "nowhere in range" if length is None else f"{length:,.0f}"


# Equivalences. Each returns the operator's answer, the strategy that gave it, and the explicit evaluation.


def equivalences(seed: int = 0) -> list[Equivalence]:
    found = []
    for check in EQUIVALENCES:
        got, way, expected = check(torch.Generator().manual_seed(seed))
        residual = float((got - expected).abs().max() / expected.abs().max())
        found.append(Equivalence(str(check.__doc__), way, residual if math.isfinite(residual) else math.inf))
    return found


def _draw(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _attend(*tensors: Tensor, **options) -> tuple[Tensor, str]:
    return attend(*tensors, **options), explain(*tensors, **options).strategy


def _random_graph(generator: torch.Generator, nodes: int, edges: int) -> Graph:
    source, target = torch.randint(nodes, (2, edges), generator=generator)
    return Graph.from_edges(source, target, nodes=nodes)


def softmax_attention(generator):
    """attend = scaled_dot_product_attention"""
    q, k, v = _draw(generator, 3, 2, 4, 100, 16)
    return *_attend(q, k, v, strategy="tiled"), F.scaled_dot_product_attention(q, k, v)


def causal_attention(generator):
    """Causal() = softmax(q·k/√d, −∞ above the diagonal) v"""
    q, k, v = _draw(generator, 3, 2, 4, 100, 16)
    later = torch.ones(100, 100, dtype=torch.bool).triu(1)
    scores = (q @ k.mT / 16**0.5).masked_fill(later, -torch.inf)
    return *_attend(q, k, v, neighbors=Causal()), scores.softmax(-1) @ v


def complete_graph(generator):
    """a complete Graph = Everyone()"""
    q, k, v = _draw(generator, 3, 4, 60, 16)
    over_edges = _attend(q, k, v, neighbors=Graph.complete(60), strategy="sparse")
    return *over_edges, attend(q, k, v, neighbors=Everyone(), strategy="reference")


def graph_attention(generator):
    """GAT = Additive() over a Graph"""
    graph = _random_graph(generator, 50, 400)
    listener, speaker, z = _draw(generator, 50, 1), _draw(generator, 50, 1), _draw(generator, 50, 8)
    weights = F.leaky_relu(listener + speaker.mT, 0.2).exp() * graph.adjacency().double()
    expected = weights @ z / weights.sum(-1, keepdim=True)
    return *_attend(listener, speaker, z, similarity=Additive(0.2), neighbors=graph), expected


def mean_aggregation(generator):
    """the mean over neighbours = Uniform() over a Graph"""
    graph, x = _random_graph(generator, 50, 400), _draw(generator, 50, 8)
    adjacency = graph.adjacency().double()
    expected = adjacency @ x / adjacency.sum(-1, keepdim=True)
    return *_attend(x, x, x, similarity=Uniform(), neighbors=graph), expected


def convolution(generator):
    """the convolution with w = (2, 0, 1) = Relative(−∞ at 0, ln 2 behind, 0 ahead), values 3x"""
    x = _draw(generator, 200, 1)
    table = torch.tensor([0.0, -torch.inf, math.log(2)], dtype=torch.float64)  # p₋₁, p₀, p₁
    out, way = _attend(
        0 * x, x, 3 * x, similarity=Softmax(scale=1.0), position=Relative(table), neighbors=Window(1)
    )
    kernel = torch.tensor([2.0, 0.0, 1.0], dtype=torch.float64)
    return out[1:-1], way, F.conv1d(x.mT, kernel.view(1, 1, 3)).mT


def factored_kernel(generator):
    """a quadratic kernel by factoring = by pairs"""
    q, k, v = _draw(generator, 3, 4, 300, 16)
    similarity = Polynomial(degree=2)
    factored = attend(q, k, v, similarity=similarity, strategy="factored")
    return factored, "factored", attend(q, k, v, similarity=similarity, strategy="reference")


def decoding(generator):
    """a causal kernel token by token = all at once"""
    q, k, v = _draw(generator, 3, 4, 40, 8)
    options = {"similarity": Polynomial(degree=2), "neighbors": Causal(), "position": Alibi()}
    state, outs = None, []
    for token in range(40):
        out, state = step(*(x[:, token : token + 1] for x in (q, k, v)), state, **options)
        outs.append(out)
    return torch.cat(outs, -2), "scan", attend(q, k, v, **options, strategy="reference")


EQUIVALENCES: list[Callable] = [
    softmax_attention,
    causal_attention,
    complete_graph,
    graph_attention,
    mean_aggregation,
    convolution,
    factored_kernel,
    decoding,
]


def plans() -> list[Plan]:
    """Softmax of ordinary length, a kernel of great length, GAT on a graph the size of a citation network."""
    sequence = torch.empty(1, 8, 4096, 64, device="meta")
    long = torch.empty(1, 8, 65536, 16, device="meta")
    graph = _random_graph(torch.Generator().manual_seed(0), 20_000, 100_000)
    score, features = torch.empty(8, 20_000, 1, device="meta"), torch.empty(8, 20_000, 8, device="meta")
    return [
        explain(sequence, sequence, sequence, neighbors=Causal()),
        explain(long, long, long, similarity=Polynomial(degree=2)),
        explain(score, score, features, similarity=Additive(), neighbors=graph),
    ]


# The crossover


def crossover(lengths: list[int] | None = None) -> Crossover:
    lengths = lengths or LENGTHS
    similarity = Polynomial(degree=2)
    measured: dict[str, list[float]] = {"tiled": [], "factored": []}
    predicted: dict[str, list[float]] = {"tiled": [], "factored": []}
    with torch.no_grad():
        for length in lengths:
            x = torch.randn(HEADS, length, DIM, generator=torch.Generator().manual_seed(0))
            for way in measured:
                run = partial(attend, x, x, x, similarity=similarity, strategy=way)
                measured[way].append(_best(run))
                predicted[way].append(_estimate(length, way))
    plan = _plan(lengths[0])
    return Crossover(
        lengths,
        measured,
        predicted,
        _crossing(lengths, measured),
        _crossing(lengths, predicted),
        plan.calibrated,
    )


def _best(function: Callable[[], object], patience: float = 0.5) -> float:
    """The shortest of the calls that fit into `patience` seconds: the least disturbed by others."""
    times: list[float] = []
    while len(times) < 2 or (sum(times) < patience and len(times) < 50):
        start = perf_counter()
        function()
        times.append(perf_counter() - start)
    return min(times)


def _plan(length: int) -> Plan:
    x = torch.empty(HEADS, length, DIM, device="meta")
    return explain(x, x, x, similarity=Polynomial(degree=2))


def _estimate(length: int, way: str) -> float:
    return next(entry.seconds or 0.0 for entry in _plan(length).candidates if entry.name == way)


def _crossing(lengths: list[int], times: dict[str, list[float]]) -> float | None:
    """The length at which the second overtakes the first for good, read off a log-log plot."""
    gap = [math.log(second / first) for first, second in zip(*times.values(), strict=True)]
    for place in range(len(gap) - 1, 0, -1):
        if gap[place] < 0 <= gap[place - 1]:
            share = gap[place - 1] / (gap[place - 1] - gap[place])
            return lengths[place - 1] * (lengths[place] / lengths[place - 1]) ** share
    return None


COLOURS = {"tiled": "#D55E00", "factored": "#0072B2"}  # Okabe and Ito's vermilion and blue
LABELS = {"tiled": "pair by pair, O(N²)", "factored": "factored, O(N)"}


def draw(crossing: Crossover, output: Path) -> Path:
    """Time against length, both axes logarithmic; what the planner expects is dashed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    settings: dict = {
        "font.family": "DejaVu Sans",
        "font.size": 10.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#888888",
        "svg.hashsalt": "heedful",
    }
    with plt.rc_context(settings):
        figure, axes = plt.subplots(figsize=(7.6, 4.8), dpi=160, facecolor="white")
        for way, colour in COLOURS.items():
            times = [1e3 * t for t in crossing.measured[way]]
            expected = [1e3 * t for t in crossing.predicted[way]]
            axes.loglog(crossing.lengths, expected, color=colour, lw=1.2, ls=(0, (4, 3)), alpha=0.55)
            axes.loglog(
                crossing.lengths, times, color=colour, lw=2.2, marker="o", ms=4.5, solid_capstyle="round"
            )
            axes.annotate(
                LABELS[way],
                (crossing.lengths[-1], times[-1]),
                xytext=(8, 0),
                textcoords="offset points",
                color=colour,
                va="center",
                fontweight="bold",
                annotation_clip=False,
            )
        _mark(axes, crossing)
        axes.set_xscale("log", base=2)
        axes.set_xticks(crossing.lengths, [f"{length:,}" for length in crossing.lengths])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set_xlabel("length N")
        axes.set_ylabel("milliseconds a call")
        axes.grid(True, which="major", color="#E6E6E6", lw=0.8)
        axes.set_axisbelow(True)
        figure.suptitle(
            "A quadratic kernel: when to stop counting pairs",
            x=0.012,
            y=0.985,
            ha="left",
            fontsize=13,
            fontweight="bold",
        )
        constants = "calibrated" if crossing.calibrated else "with default constants"
        figure.text(
            0.012,
            0.868,
            f"Polynomial(degree=2), {HEADS} heads, {DIM} wide, float32, {torch.get_num_threads()} threads.\n"
            f"Solid: measured here.  Dashed: what the planner expects, {constants}.",
            fontsize=9,
            color="#555555",
            linespacing=1.4,
        )
        figure.subplots_adjust(left=0.11, right=0.78, top=0.82, bottom=0.12)
        output.mkdir(parents=True, exist_ok=True)
        path = output / "crossover.png"
        figure.savefig(path)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        plt.close(figure)
    return path


def _mark(axes, crossing: Crossover) -> None:
    """Vertical lines where the lines cross, as measured and as predicted."""
    found = ((crossing.measured_at, "measured", "-"), (crossing.predicted_at, "planned", (0, (4, 3))))
    marks = sorted((at, word, style) for at, word, style in found if at is not None)
    for place, (at, word, style) in enumerate(marks):
        first = place == 0 and len(marks) > 1
        axes.axvline(at, color="#333333", lw=1, ls=style, alpha=0.7)
        axes.annotate(
            f"{word}\nN ≈ {at:,.0f}",
            (at, 0.985),
            xycoords=axes.get_xaxis_transform(),
            xytext=(-5 if first else 5, 0),
            textcoords="offset points",
            ha="right" if first else "left",
            va="top",
            fontsize=9,
            color="#333333",
        )
