"""Softmax on a GPU: what attend() adds to a bare SDPA, and relative tables beside SDPA with a dense bias.

8 heads of 64 in bfloat16. A relative table has a number for each head and distance and gets a gradient; SDPA
is given the same numbers as a matrix (heads, N, N), which it needs anew for every table and whose gradient is
summed along its diagonals.
"""

from __future__ import annotations

from statistics import median

import torch
from torch.nn import functional as F

from .. import Relative, attend, explain
from ..attention.measure import peak_memory
from .gat_cuda import milliseconds

HEADS, DIM = 8, 64


def run_overhead(*, quick: bool, device: str):
    rows = []
    for batch, length in ((1, 512), (1, 4096), (8, 4096)):
        q, k, v = torch.randn(3, batch, HEADS, length, DIM, device="cuda").bfloat16().unbind()
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        gradient = torch.randn_like(q)

        def step(call, leaves=leaves, gradient=gradient):
            return lambda: torch.autograd.grad(call(*leaves), leaves, gradient)

        calls = {
            "forward": lambda call, q=q, k=k, v=v: lambda: call(q, k, v),
            "forward and backward": step,
        }
        for what, make in calls.items():
            bare, ours = make(F.scaled_dot_product_attention), make(attend)
            taken: dict[str, list[float]] = {"bare": [], "ours": []}
            for _ in range(3 if quick else 7):  # in turns
                taken["bare"].append(_many(bare))
                taken["ours"].append(_many(ours))
            bare_ms, ours_ms = median(taken["bare"]), median(taken["ours"])
            rows.append(
                {"batch": batch, "length": length, "what": what, "strategy": explain(q, k, v).strategy,
                 "SDPA ms": bare_ms, "attend ms": ours_ms, "overhead": ours_ms / bare_ms - 1}
            )  # fmt: skip
    alone, many = (
        max(row["overhead"] for row in rows if row["length"] == 4096 and row["batch"] == batch)
        for batch in (1, 8)
    )
    verdict = f"attend() adds {alone:+.1%} to a bare SDPA at 4,096 (goal 2 %), {many:+.1%} in a batch of 8"
    return rows, verdict, alone <= 0.02


def _many(call) -> float:
    """Of one call in a row of fifty: begun while the GPU is at the last, as in a model."""
    return milliseconds(lambda: [call() for _ in range(50)], 3, 1) / 50


def run_relative(*, quick: bool, device: str):
    length = 2048 if quick else 16_384
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, length, DIM, device="cuda").bfloat16().requires_grad_() for _ in "qkv")
    table = torch.randn(HEADS, 2 * length - 1, device="cuda").requires_grad_()
    gradient = torch.randn_like(q)
    inputs = [q, k, v, table]

    def ours():
        out = attend(q, k, v, position=Relative(table), strategy="flex")
        return torch.autograd.grad(out, inputs, gradient)

    def dense():
        distance = torch.arange(length, device="cuda")
        bias = table.bfloat16()[:, distance[:, None] - distance + length - 1]
        out = F.scaled_dot_product_attention(q, k, v, bias[None])
        return torch.autograd.grad(out, inputs, gradient)

    found = [call() for call in (ours, dense)]
    error = max(((a - b).norm() / b.norm()).item() for a, b in zip(*found, strict=True))
    del found
    rows = [
        {"what": what, "step ms": milliseconds(call, 3, 1), "peak MiB": peak_memory(call, "cuda") / 2**20}
        for what, call in (("heedful, flex", ours), ("SDPA, dense bias", dense))
    ]
    ratio = rows[1]["step ms"] / rows[0]["step ms"]
    rows[1]["times heedful"] = ratio
    verdict = f"tables at {length:,}: {ratio:.1f}× SDPA with a dense bias (goal 3), apart {error:.1e}"
    return rows, verdict, ratio >= 3
