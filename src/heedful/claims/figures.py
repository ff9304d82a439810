"""A claim's curves and fits as a picture: one panel a group of curves, one for each unit that was fitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lab.figures import COLOURS, canvas

if TYPE_CHECKING:
    from .claim import Verdict


def draw(verdict: Verdict):
    """The claim's own drawing, or its curves and fits; None where there are none."""
    from .claim import claims

    entry = claims().get(verdict.id)
    if entry is not None and entry.draw is not None:
        return entry.draw(verdict)
    panels: dict[str, list] = {}
    for each in verdict.evidence:
        if each.kind == "curve":
            panels.setdefault(each.data["panel"], []).append(each)
        elif each.kind == "exponent" and not _fitted_again(each, verdict.evidence):
            panels.setdefault(f"{each.data['unit']} against {each.data['size']}", []).append(each)
    if not panels:
        return None
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = canvas(4.6 * columns, 3.5 * rows, ncols=columns, nrows=rows, squeeze=False)
    for axis, (title, lines) in zip(axes.flat, panels.items(), strict=False):
        (_curves if lines[0].kind == "curve" else _fits)(axis, lines)
        axis.set_title(title, loc="left", fontsize=10)
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    return figure


def _fitted_again(each, evidence) -> bool:
    """Whether the same points are fitted later, as where a stated exponent and ours are held against them."""
    later = evidence[evidence.index(each) + 1 :]
    return any(other.kind == "exponent" and other.data["points"] == each.data["points"] for other in later)


def _curves(axis, lines) -> None:
    for number, each in enumerate(lines):
        x, y, low, high = zip(*each.data["rows"], strict=True)
        colour = "#444444" if each.data["bound"] else COLOURS[number % len(COLOURS)]
        style = "--" if each.data["bound"] else "o-" if len(x) <= 20 else "-"
        axis.plot(x, y, style, color=colour, markersize=3.5, linewidth=1.5, label=each.data["label"])
        if low != high:
            axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    first = lines[0].data
    if "x" in first["log"]:
        axis.set_xscale("log")
    if "y" in first["log"]:
        axis.set_yscale("log")
    axis.set_xlabel(first["across"])
    axis.set_ylabel(first["up"])
    if len(lines) > 1 or first["label"] != first["up"]:
        axis.legend(frameon=False, fontsize=8)


def _fits(axis, lines) -> None:
    import numpy as np

    for number, each in enumerate(lines):
        x, y = zip(*each.data["points"], strict=True)
        colour = COLOURS[number % len(COLOURS)]
        ends = np.array([min(x), max(x)])
        axis.plot(x, y, "o", color=colour, markersize=4)
        label = f"{each.name}: exponent {each.data['slope']:.2f}"
        axis.plot(
            ends,
            np.exp(each.data["start"]) * ends ** each.data["slope"],
            color=colour,
            linewidth=1,
            label=label,
        )
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel(lines[0].data["size"])
    axis.set_ylabel(lines[0].data["unit"])
    axis.legend(frameon=False, fontsize=8)
