"""attend() beside a bare scaled_dot_product_attention on tensors so small that only the overhead is left."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from .. import Causal, attend
from . import interleaved


def run(*, quick: bool, device: str):
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 4, 16, 16, device=device)
    learned = [x.clone().requires_grad_() for x in (q, k, v)]
    gradient = torch.ones_like(q)

    def step(function):
        return lambda: torch.autograd.grad(function(), learned, gradient)

    cases = {
        "inference": (lambda: scaled_dot_product_attention(q, k, v), lambda: attend(q, k, v)),
        "inference, causal": (
            lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
            lambda: attend(q, k, v, neighbors=Causal()),
        ),
        "training, forward": (lambda: scaled_dot_product_attention(*learned), lambda: attend(*learned)),
        "training, forward and backward": (
            step(lambda: scaled_dot_product_attention(*learned)),
            step(lambda: attend(*learned)),
        ),
    }
    rows = []
    for name, (bare, ours) in cases.items():
        taken = interleaved({"bare": bare, "attend": ours}, rounds=500 if quick else 5000, warm=50)
        rows.append(
            {
                "what": name,
                "bare µs": 1e6 * taken["bare"],
                "attend µs": 1e6 * taken["attend"],
                "overhead µs": 1e6 * (taken["attend"] - taken["bare"]),
            }
        )
    most = max(row["overhead µs"] for row in rows[:3])
    verdict = (
        f"a call costs {rows[0]['overhead µs']:.0f} µs more than bare, {most:.0f} µs at most (goal 30); "
        f"a training step, backward included, {rows[3]['overhead µs']:.0f} µs"
    )
    return rows, verdict, most <= 30
