"""Pairs by tiles on a GPU, beside all pairs at once and what else takes the problem.

8 heads of 64, forward and backward. "All pairs" is `reference`, the formula in torch operations, its matrix
of scores in memory; the others are FlexAttention, edge lists, an FFT, SDPA with a mask. Where a table learns,
its gradient is asked for.
"""

from __future__ import annotations

import torch

from .. import Alibi, Causal, EluKernel, Global, Polynomial, Relative, Softmax, Uniform, Window, attend
from ..attention.measure import peak_memory
from ..attention.strategies import STRATEGIES
from .gat_cuda import milliseconds

HEADS, DIM = 8, 64
RIVALS = ("reference", "flex", "sparse", "toeplitz", "fused")
ROOM = 100e9  # bytes: what does not fit half an H200 twice is left out


def problems(length: int, quick: bool):
    table = torch.randn(HEADS, 2 * length - 1, device="cuda").requires_grad_()
    near = Causal() & Window(256)
    yield Polynomial(2), near, None, torch.float32
    yield Polynomial(2), Causal(), Relative(table), torch.float32
    if quick:
        return
    yield Polynomial(2), Causal(), Relative(table), torch.bfloat16
    yield Polynomial(4), near, Alibi(), torch.bfloat16
    yield EluKernel(), Window(256), None, torch.float32
    yield Uniform(), Window(256), Relative(table), torch.float32
    yield Softmax(), near, Relative(table), torch.float32
    yield Softmax(), Window(64) | Global([0]), None, torch.bfloat16
    yield Softmax(), near, Relative(table), torch.bfloat16


def run(*, quick: bool, device: str):
    rows = []
    for length in (2048,) if quick else (4096, 16_384):
        torch.manual_seed(0)
        for similarity, neighbors, position, dtype in problems(length, quick):
            rows += _race(similarity, neighbors, position, dtype, length)
    ours = {row["problem"]: row for row in rows if row["strategy"] == "tiled"}
    ratios = [
        row["step ms"] / ours[row["problem"]]["step ms"] for row in rows if row["strategy"] == "reference"
    ]
    for row in rows:
        row["times tiled"] = row["step ms"] / ours[row["problem"]]["step ms"]
    verdict = (
        f"a step by tiles is {min(ratios):.1f} to {max(ratios):.1f}× all pairs at once, of {len(ratios)}"
    )
    return rows, verdict, None


def _race(similarity, neighbors, position, dtype, length) -> list[dict]:
    leaves = [torch.randn(1, HEADS, length, DIM, device="cuda") for _ in "qkv"]
    if isinstance(similarity, Polynomial):
        leaves[0] /= DIM**0.5
    leaves = [x.to(dtype).requires_grad_() for x in leaves]
    gradient = torch.randn_like(leaves[0])
    learned = [position.entries] if isinstance(position, Relative) else []
    options = {"similarity": similarity, "neighbors": neighbors, "position": position}
    said = " · ".join(str(part) for part in options.values() if part)
    said = f"{said}, {str(dtype).removeprefix('torch.')}, {length:,}"
    rows, first = [], None
    for name in ("tiled", *RIVALS):
        if not _takes(name, leaves, similarity, neighbors, position):
            continue

        def forward(name=name):
            with torch.no_grad():
                return attend(*leaves, strategy=name, **options)

        def step(name=name):
            out = attend(*leaves, strategy=name, **options)
            return torch.autograd.grad(out, [*leaves, *learned], gradient, allow_unused=True)

        out = forward()
        first = out if first is None else first
        rows.append(
            {"problem": said, "strategy": name, "forward ms": milliseconds(forward, 5, 1),
             "step ms": milliseconds(step, 5, 1), "peak MiB": peak_memory(step, "cuda") / 2**20,
             "apart": ((out - first).float().norm() / first.float().norm()).item()}
        )  # fmt: skip
        torch.cuda.empty_cache()
    return rows


def _takes(name: str, leaves, similarity, neighbors, position) -> bool:
    from ..attention.operator import _problem

    problem = _problem(*leaves, similarity, neighbors, position, 0.0, True)
    way = STRATEGIES[name]
    return (
        way.accepts(problem) is None and way.cost(problem).memory + way.backward_cost(problem).memory < ROOM
    )
