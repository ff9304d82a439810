"""Pictures every study can have without drawing anything itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .result import Result

COLOURS = ("#3b6ea8", "#c8693a", "#4f8f5b", "#8a5aa8", "#a8893b", "#5a9aa8", "#a84f6b", "#6b6b6b")


def canvas(width: float = 7.0, height: float = 4.0, **options):
    """A quiet figure and axes that need no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.subplots(**options)
    for one in [axes] if not hasattr(axes, "flat") else axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(True, alpha=0.25, linewidth=0.6)
    return figure, axes


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
