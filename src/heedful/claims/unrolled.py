"""The picture of A1.1: a recurrent net unrolled, drawn from the edges that were found in its trace."""

from __future__ import annotations

from ..lab.figures import COLOURS

ROWS = {"x": 0.0, "h": 1.0, "y": 2.0, "L": 3.0}


def draw_unrolled(verdict):
    """Nodes where their letters put them, an arrow an edge, named after the weight it goes through."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    edges = next((e.data["edges"] for e in verdict.evidence if "edges" in e.data), [])
    names = sorted({end for a, b, _ in edges for end in (a, b)})

    def place(name: str) -> tuple[float, float]:
        step = float(name[1:]) if name[1:] else 2.0
        return 1.6 * step, 1.1 * ROWS.get(name[0], 0.0)

    figure = Figure(figsize=(7, 4.6), dpi=120)
    FigureCanvasAgg(figure)
    axis = figure.add_axes((0, 0, 1, 1))
    colours = {"W": COLOURS[0], "U": COLOURS[1], "V": COLOURS[2], "": "#888888"}
    for a, b, through in edges:
        (x0, y0), (x1, y1) = place(a), place(b)
        arrow = {"arrowstyle": "-|>", "color": colours.get(through, "#888888"), "shrinkA": 15, "shrinkB": 15}
        axis.annotate("", (x1, y1), (x0, y0), arrowprops=arrow)
        if through:
            beside = (0.0, 0.12) if y0 == y1 else (0.12, 0.0)
            where = ((x0 + x1) / 2 + beside[0], (y0 + y1) / 2 + beside[1])
            axis.text(
                *where, through, color=colours.get(through, "#888888"), ha="center", va="center", fontsize=10
            )
    for name in names:
        x, y = place(name)
        axis.plot([x], [y], "o", markersize=26, color="white", markeredgecolor="#444444", zorder=3)
        label = f"${name[0]}_{{{name[1:]}}}$" if name[1:] else f"${name}$"
        axis.text(x, y, label, ha="center", va="center", fontsize=11, zorder=4)
    axis.set_axis_off()
    axis.margins(0.12)
    return figure
