"""What watching costs: the same steps with and without the doctor, in turns, tier by tier."""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

from ..doctor import Watch

NETS = {
    "4 linear layers": lambda: (
        nn.Sequential(*(nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(4)), nn.Linear(128, 10)),
        torch.randn(128, 128),
    ),
    "convolutions with BatchNorm": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
        ),
        torch.randn(64, 3, 16, 16),
    ),
    "a transformer layer": lambda: (
        nn.Sequential(
            nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), nn.Flatten(), nn.LazyLinear(10)
        ),
        torch.randn(32, 16, 64),
    ),
}  # fmt: skip


def run(*, quick: bool, device: str):
    rows = []
    for name, make in NETS.items():
        for tier in ("light", "normal", "deep"):
            torch.manual_seed(0)
            rows.append(
                {"what": name, "tier": tier, "overhead": _overhead(*make(), tier, 4 if quick else 12)}
            )
    most = max(row["overhead"] for row in rows if row["tier"] == "normal")
    return rows, f"watching costs at most {most:.1%} in the default tier (goal 10 %)", most <= 0.1


def _overhead(model, x, tier: str, rounds: int, steps: int = 40) -> float:
    """Median of watched over plain stretches of one long run, once the first looks are behind it."""
    model(x)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    y = torch.randint(10, (len(x),))

    def stretch() -> float:
        start = time.process_time()
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        return time.process_time() - start

    seen = Watch(model, optimizer, tier=tier)
    with seen:
        for _ in range(3):
            stretch()
    ratios = []
    for _ in range(rounds):
        before = time.perf_counter()
        plain = stretch()
        seen.start += time.perf_counter() - before  # what it may spend is a share of watched time
        seen.instruments.install()
        ratios.append(stretch() / plain)
        seen.instruments.remove()
    return statistics.median(ratios) - 1
