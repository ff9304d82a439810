"""Pictures every study can have without drawing anything itself."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Literal

from torch import Tensor, uint8

if TYPE_CHECKING:
    from .result import Result

COLOURS = ("#3b6ea8", "#c8693a", "#4f8f5b", "#8a5aa8", "#a8893b", "#5a9aa8", "#a84f6b", "#6b6b6b")


def canvas(width: float = 7.0, height: float = 4.0, **options):
    """A quiet figure and axes that need no display."""
    figure = sheet(width, height)
    axes = figure.subplots(**options)
    for one in [axes] if not hasattr(axes, "flat") else axes.flat:
        quiet(one)
    return figure, axes


def sheet(width: float, height: float):
    """A figure that has no axes yet and needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)
    return figure


def quiet(axes, lines: Literal["both", "x", "y"] = "both") -> None:
    """No box around a plot, and faint lines behind it."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, axis=lines, alpha=0.25, linewidth=0.6)


def upwards(axes, words: str) -> None:
    """What grows upwards, in as many lines as it takes not to be cut off."""
    axes.set_ylabel(textwrap.fill(words, 36), fontsize=9)


def means(result: Result):
    """Each metric of each variant: seeds as dots, mean and interval, what was published as a diamond."""
    variants, metrics = result.variants(), list(result.study.metrics)
    height = 1.2 + 0.34 * len(variants)
    figure, axes = canvas(
        max(5.0, 4.2 * len(metrics)), height, ncols=len(metrics), sharey=True, squeeze=False
    )
    for column, metric in enumerate(metrics):
        plot = axes[0, column]
        for place, (key, chosen, _) in enumerate(variants):
            values = list(result.values(key, metric).values())
            summary = result.summary(key, metric)
            if summary is None:
                continue
            plot.plot(values, [place] * len(values), ".", color=COLOURS[0], alpha=0.3, markersize=5)
            low, high = summary.interval or (summary.mean, summary.mean)
            plot.plot([low, high], [place, place], color=COLOURS[0], linewidth=3, solid_capstyle="butt")
            plot.plot([summary.mean], [place], "o", color=COLOURS[0], markersize=6)
            figure_there = result.study.published(chosen).get(metric)
            if figure_there is not None:
                plot.plot(
                    [figure_there.value], [place], "D", markerfacecolor="none", color=COLOURS[1], markersize=8
                )
        plot.set_xlabel(result.study.metrics[metric])
        plot.set_title(metric, loc="left", fontsize=10)
        plot.set_yticks(range(len(variants)), [label for _, _, label in variants])
        plot.invert_yaxis() if column == 0 else None
    return figure


def lines(result: Result, across: str, metrics: list[str], by: str, *, log: bool = False):
    """Metrics against one setting: for every value of another a line, with a band from the lowest seed to the
    highest. (Standard deviations would reach beyond what there is: above 100 %.)
    """
    figure, axes = canvas(4.6 * len(metrics) + 1, 3.6, ncols=len(metrics), squeeze=False)
    kinds = list(dict.fromkeys(chosen[by] for _, chosen, _ in result.variants()))
    for plot, metric in zip(axes[0], metrics, strict=True):
        for colour, kind in zip(COLOURS, kinds, strict=False):
            points = sorted(
                (chosen[across], summary.mean, min(seeds), max(seeds))
                for key, chosen, _ in result.variants()
                if chosen[by] == kind
                and (summary := result.summary(key, metric)) is not None
                and (seeds := result.values(key, metric).values())
            )
            if not points:
                continue
            x, mean, low, high = (list(column) for column in zip(*points, strict=True))
            plot.plot(x, mean, "o-", color=colour, label=str(kind), markersize=4)
            plot.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        plot.set_xlabel(across)
        upwards(plot, result.study.metrics.get(metric, metric))
        if log:
            values = sorted({chosen[across] for _, chosen, _ in result.variants()})
            plot.set_xscale("log", base=2)
            plot.set_xticks(values, [str(value) for value in values])
            plot.minorticks_off()
    axes[0, -1].legend(title=by, frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def mean_curve(result: Result, key: str, name: str) -> tuple[list[int], list[float]]:
    """Steps, and the mean at each over the finished seeds of a variant that logged all of them."""
    curves = [
        dict(result.store.curves(trial).get(name, []))
        for trial in result.trials
        if trial.key == key and trial.status == "done"
    ]
    steps = sorted(set.intersection(*map(set, curves))) if curves else []
    return steps, [sum(curve[step] for curve in curves) / len(curves) for step in steps]


def saved(result: Result, key: str, name: str) -> dict[str, Tensor] | None:
    """The tensors that the first finished seed of a variant saved under a name; None where it has none."""
    from safetensors.torch import load_file

    for trial in result.trials:
        path = trial.folder / name
        if trial.key == key and trial.status == "done" and path.is_file():
            return load_file(path)
    return None


def picture(axes, image: Tensor, title: str = "", **options) -> None:
    """An image (channels, height, width) or (height, width), without ticks."""
    image = image.detach().cpu().float() / (255 if image.dtype == uint8 else 1)
    if image.dim() == 3:
        image = image[0] if len(image) == 1 else image.clamp(0, 1).permute(1, 2, 0)
    axes.imshow(
        image.numpy(),
        **{"cmap": "gray", "vmin": 0, "vmax": 1, "interpolation": "nearest", **options},
    )
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xticks([], [])
    axes.set_yticks([], [])
    axes.grid(False)
    axes.spines[:].set_visible(False)
