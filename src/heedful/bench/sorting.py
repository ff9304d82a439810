"""Additive attention over a complete graph: sorted, in O(N log N), where pairs would take hours."""

from __future__ import annotations

import torch

from .. import Additive, attend
from ..attention.measure import seconds, training_step


def run(*, quick: bool, device: str):
    torch.manual_seed(0)
    similarity = Additive(0.2)

    def draw(nodes, heads=8, dim=8, dtype=torch.float32):
        return [torch.randn(heads, nodes, width, device=device, dtype=dtype) for width in (1, 1, dim)]

    rows = []
    for nodes in (1_000, 10_000) if quick else (1_000, 10_000, 100_000):
        tensors = draw(nodes)
        with torch.no_grad():
            forward = seconds(lambda: attend(*tensors, similarity=similarity, strategy="sorted"))  # noqa: B023
        step = seconds(
            training_step(lambda *t: attend(*t, similarity=similarity, strategy="sorted"), tensors)
        )
        rows.append(
            {"nodes": nodes, "heads × dim": "8 × 8", "forward s": forward, "forward and backward s": step}
        )
    small = draw(2_000, heads=2)
    with torch.no_grad():
        exact = attend(*[x.double() for x in small], similarity=similarity, strategy="reference")
        fast = attend(*small, similarity=similarity, strategy="sorted")
    error = ((fast - exact).norm() / exact.norm()).item()
    last = rows[-1]
    verdict = (
        f"{last['nodes']:,} nodes in {last['forward s']:.2f} s forward, "
        f"{last['forward and backward s']:.2f} s with backward (goal: under 1 s); "
        f"relative error against the reference at 2,000 nodes {error:.1e}"
    )
    return rows, verdict, last["forward s"] < 1 and error < 1e-5
