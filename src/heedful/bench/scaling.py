"""Time and peak memory of every strategy against length, and the exponents fitted from the longer half."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from .. import Additive, Causal, Everyone, Graph, Polynomial, Relative, Softmax, Window, attend
from ..attention.measure import peak_memory, seconds

CASES = {
    "reference": ("Softmax, everyone", Softmax(), lambda n: Everyone(), None, (256, 512, 1024, 2048, 4096)),
    "fused": ("Softmax, everyone", Softmax(), lambda n: Everyone(), None, (1024, 2048, 4096, 8192, 16384)),
    "tiled": ("Softmax, everyone", Softmax(), lambda n: Everyone(), None, (1024, 2048, 4096, 8192, 16384)),
    "factored": (
        "Polynomial, everyone",
        Polynomial(2),
        lambda n: Everyone(),
        None,
        (4096, 8192, 16384, 32768, 65536),
    ),
    "scan": (
        "Polynomial, causal",
        Polynomial(2),
        lambda n: Causal(),
        None,
        (4096, 8192, 16384, 32768, 65536),
    ),
    "toeplitz": (
        "Polynomial, relative",
        Polynomial(2),
        lambda n: Everyone(),
        "table",
        (1024, 2048, 4096, 8192, 16384),
    ),
    "sorted": (
        "Additive, everyone",
        Additive(),
        lambda n: Everyone(),
        None,
        (8192, 16384, 32768, 65536, 131072),
    ),
    "banded": (
        "Softmax, window 64",
        Softmax(),
        lambda n: Window(64),
        None,
        (4096, 8192, 16384, 32768, 65536),
    ),
    "sparse": ("Additive, 16 neighbours", Additive(), "graph", None, (8192, 16384, 32768, 65536, 131072)),
}


def run(*, quick: bool, device: str):
    rows = []
    for strategy, (label, similarity, pattern, position, lengths) in CASES.items():
        for length in lengths[:3] if quick else lengths:
            torch.manual_seed(0)
            wide = 1 if isinstance(similarity, Additive) else 16
            q, k, v = (torch.randn(1, 1, length, width, device=device) for width in (wide, wide, 16))
            if pattern == "graph":
                neighbors = Graph.from_edge_index(torch.randint(length, (2, 16 * length)), nodes=length).to(
                    device
                )
            else:
                neighbors = pattern(length)
            table = Relative(0.1 * torch.randn(2 * length + 1, device=device)) if position else None

            problem = {"similarity": similarity, "neighbors": neighbors, "position": table}
            once = partial(_forward, q, k, v, strategy=strategy, **problem)
            rows.append(
                {
                    "strategy": strategy,
                    "problem": label,
                    "length": length,
                    "seconds": seconds(once, least=0.05, device=device),
                    "peak bytes": peak_memory(once, device),
                }
            )
    exponents = {}
    for strategy in CASES:
        own = [row for row in rows if row["strategy"] == strategy][-3:]
        lengths = np.log([row["length"] for row in own])
        exponents[strategy] = tuple(
            float(np.polyfit(lengths, np.log([row[quantity] for row in own]), 1)[0])
            for quantity in ("seconds", "peak bytes")
        )
    for row in rows:
        row["time exponent"], row["memory exponent"] = exponents[row["strategy"]]
    verdict = "; ".join(
        f"{name}: time N^{time:.2f}, memory N^{memory:.2f}" for name, (time, memory) in exponents.items()
    )
    return rows, verdict, None


@torch.no_grad()
def _forward(*tensors, **options):
    attend(*tensors, **options)


def figure(rows: list[dict], path: str) -> None:
    """Time and memory against length, one line a strategy, its fitted exponent at the side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    colors = [
        "#4477AA",
        "#EE6677",
        "#228833",
        "#999933",
        "#33AACC",
        "#AA3377",
        "#777777",
        "#000000",
        "#DD7744",
    ]
    plt.rcParams.update({"font.size": 10, "svg.fonttype": "none"})
    image, axes = plt.subplots(1, 2, figsize=(12, 4.8), constrained_layout=True)
    quantities = (
        ("seconds", 1.0, "seconds", "time exponent", "forward time"),
        ("peak bytes", 2.0**20, "MiB", "memory exponent", "peak memory beyond the inputs"),
    )
    for axis, (quantity, unit, label, exponent, title) in zip(axes, quantities, strict=True):
        ends = []
        for color, strategy in zip(colors, CASES, strict=True):
            own = [row for row in rows if row["strategy"] == strategy]
            x, y = [row["length"] for row in own], [row[quantity] / unit for row in own]
            axis.plot(x, y, "o-", color=color, markersize=3.5, linewidth=1.6)
            ends.append((y[-1], x[-1], color, f"{strategy}  $N^{{{own[-1][exponent]:.2f}}}$"))
        axis.set(xscale="log", yscale="log", xlabel="length N", ylabel=label)
        axis.set_title(title, loc="left")
        axis.grid(alpha=0.25, which="major")
        axis.spines[["top", "right"]].set_visible(False)
        low, high = (float(np.log(bound)) for bound in axis.get_ylim())
        heights = _apart([(np.log(y) - low) / (high - low) for y, *_ in sorted(ends)], 0.062)
        for (y, x, color, text), height in zip(sorted(ends), heights, strict=True):
            axis.annotate(
                text,
                xy=(x, y),
                xytext=(1.06, height),
                textcoords="axes fraction",
                color=color,
                va="center",
                arrowprops={"arrowstyle": "-", "color": color, "alpha": 0.35, "linewidth": 0.8},
            )
    image.savefig(path, dpi=150)
    plt.close(image)


def _apart(heights: list[float], least: float) -> list[float]:
    """Ascending heights moved as little as it takes to stand `least` apart."""
    moved = list(heights)
    for _ in range(200):
        for n in range(len(moved) - 1):
            overlap = least - (moved[n + 1] - moved[n])
            if overlap > 0:
                moved[n] -= overlap / 2
                moved[n + 1] += overlap / 2
    return moved


if __name__ == "__main__":  # python -m heedful.bench.scaling RESULTS.json FIGURE.png
    import json
    import sys
    from pathlib import Path

    results = json.loads(Path(sys.argv[1]).read_text())
    figure(next(result["rows"] for result in results if result["name"] == "scaling"), sys.argv[2])
