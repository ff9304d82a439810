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
    """Time and memory against length, one line a strategy, its fitted exponent at its end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    colors = [
        "#4477AA",
        "#EE6677",
        "#228833",
        "#CCBB44",
        "#66CCEE",
        "#AA3377",
        "#BBBBBB",
        "#000000",
        "#EE8866",
    ]
    plt.rcParams.update({"font.size": 10, "svg.fonttype": "none"})
    image, axes = plt.subplots(1, 2, figsize=(11, 4.8), constrained_layout=True)
    quantities = (
        ("seconds", 1.0, "seconds", "time exponent"),
        ("peak bytes", 2.0**20, "MiB at peak", "memory exponent"),
    )
    for axis, (quantity, unit, label, exponent) in zip(axes, quantities, strict=True):
        for color, strategy in zip(colors, CASES, strict=False):
            own = [row for row in rows if row["strategy"] == strategy]
            x, y = [row["length"] for row in own], [row[quantity] / unit for row in own]
            axis.plot(x, y, "o-", color=color, markersize=3.5, linewidth=1.6)
            name = f"{strategy}  N^{own[-1][exponent]:.2f}"
            axis.annotate(
                name, (x[-1], y[-1]), xytext=(6, 0), textcoords="offset points", color=color, va="center"
            )
        axis.set(xscale="log", yscale="log", xlabel="length N", ylabel=label)
        axis.set_xlim(right=axis.get_xlim()[1] * 14)
        axis.grid(alpha=0.25, which="major")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_title("forward time", loc="left")
    axes[1].set_title("memory beyond the inputs", loc="left")
    image.savefig(path, dpi=150)
    plt.close(image)
