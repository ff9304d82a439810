"""(q·k + 1)²: auto beside writing out all pairs, and whether the planner changes over where it should."""

from __future__ import annotations

import torch

from .. import Polynomial, attend, explain
from ..attention.measure import seconds
from . import interleaved


def dense(q, k, v):
    """The evaluation everyone writes first."""
    weights = (q @ k.mT + 1) ** 2
    return weights @ v / weights.sum(-1, keepdim=True)


def run(*, quick: bool, device: str):
    length, dim, similarity = 4_096 if quick else 16_384, 16, Polynomial(degree=2)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, length, dim, device=device)
    with torch.no_grad():
        taken = interleaved(
            {"auto": lambda: attend(q, k, v, similarity=similarity), "all pairs": lambda: dense(q, k, v)},
            rounds=5,
            warm=1,
        )
        difference = (attend(q, k, v, similarity=similarity) - dense(q, k, v)).abs().max().item()
        lengths = [1 << power for power in range(4, 12)]
        curve = []
        for n in lengths:
            part = [x[..., :n, :].contiguous() for x in (q, k, v)]
            times = interleaved(
                {
                    name: lambda name=name, part=part: attend(*part, similarity=similarity, strategy=name)
                    for name in ("reference", "tiled", "factored")
                },
                rounds=25,
            )
            pairs = min(times["reference"], times["tiled"])
            chosen = explain(*part, similarity=similarity).strategy
            curve.append((n, pairs, times["factored"], chosen))
    rows = [{"length": length, "auto ms": 1e3 * taken["auto"], "all pairs ms": 1e3 * taken["all pairs"]}]
    rows += [
        {"length": n, "pairs µs": 1e6 * pairs, "factored µs": 1e6 * factored, "planned": chosen}
        for n, pairs, factored, chosen in curve
    ]
    measured = _crossing([n for n, *_ in curve], [pairs / factored for _, pairs, factored, _ in curve])
    planned = _changeover(dim, similarity, device)
    ratio = taken["all pairs"] / taken["auto"]
    apart = max(planned / measured, measured / planned) if planned and measured else float("inf")
    verdict = (
        f"{ratio:.0f}× all pairs at {length:,} (goal 20); factoring wins from {measured:.0f} on, "
        f"the planner takes it from {planned} on (goal within 2×, is {apart:.1f}×); "
        f"largest difference {difference:.1e}"
    )
    return rows, verdict, ratio >= 20 and apart <= 2


def _changeover(dim: int, similarity, device: str) -> int | None:
    """The first length from which on the planner factors; asking costs no run."""

    def factored(n: int) -> bool:
        x = torch.empty(1, n, dim, device="meta")
        return explain(x, x, x, similarity=similarity, device=device).strategy == "factored"

    return next((n for n in range(16, 2049, 8) if factored(n)), None)


def _crossing(lengths: list[int], ratios: list[float]) -> float | None:
    """Where a rising curve of ratios passes 1, interpolated in logarithms."""
    from math import exp, log

    for (n, r), (m, s) in zip(
        zip(lengths, ratios, strict=True), list(zip(lengths, ratios, strict=True))[1:], strict=False
    ):
        if r < 1 <= s:
            return exp(log(n) + (log(m) - log(n)) * (0 - log(r)) / (log(s) - log(r)))
    return float(lengths[0]) if ratios and ratios[0] >= 1 else None


__all__ = ["dense", "run", "seconds"]
