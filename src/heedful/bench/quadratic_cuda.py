"""The quadratic kernel (q·k + 1)² on a GPU: features made in registers, beside stored ones and beside SDPA.

8 heads of 65,536 positions in bfloat16. SDPA computes softmax attention of the same shape: it is what one
would run instead, and is all pairs. "Stored" is the same formula in plain torch, its features φ(k), φ(q) in
memory. "Compiled" is our call under torch.compile, which runs the same kernels as operators of their own.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .. import Causal, Everyone, Polynomial, attend
from ..attention.measure import peak_memory
from .gat_cuda import milliseconds

HEADS, LENGTH = 8, 65_536


def run(*, quick: bool, device: str):
    length, rounds = (4096, 3) if quick else (LENGTH, 10)
    rows = [_row(dim, length, causal, rounds) for dim in (16, 64) for causal in (False, True)]
    small, _, large, _ = rows
    error = max(row["error"] for row in rows)
    verdict = (
        f"dim 16: {small['stored, times heedful']:.1f}× stored features (goal 3), "
        f"{small['SDPA, times heedful']:.1f}× SDPA (goal 8); dim 64: {large['SDPA, times heedful']:.1f}× "
        f"SDPA (goal 1), {large['stored, times heedful']:.1f}× stored; peak {large['peak MiB']:.0f} MiB "
        f"where the tensors have {large['tensors MiB']:.0f}; largest error {error:.1e}"
    )
    reached = small["stored, times heedful"] >= 3 and small["SDPA, times heedful"] >= 8
    return rows, verdict, reached and large["SDPA, times heedful"] >= 1


def _row(dim: int, length: int, causal: bool, rounds: int) -> dict:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, length, dim, device="cuda").bfloat16().unbind()
    options = {"similarity": Polynomial(2), "neighbors": Causal() if causal else Everyone()}
    strategy = "scan" if causal else "factored"

    def ours(q=q, k=k, v=v):
        return attend(q, k, v, strategy=strategy, **options)

    def step(call):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        gradient = torch.randn_like(v)
        return lambda: torch.autograd.grad(call(*leaves), leaves, gradient)

    def sdpa(q=q, k=k, v=v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    few = torch.randint(length, (64,), device="cuda")
    error = _error(ours(), q, k, v, few, causal)
    torch.compiler.reset()
    compiled = torch.compile(ours, fullgraph=True, dynamic=False)
    row = {
        "dim": dim,
        "causal": causal,
        "forward ms": milliseconds(ours, rounds),
        "step ms": milliseconds(step(ours), rounds),
        "compiled ms": milliseconds(compiled, rounds),
        "compiled step ms": milliseconds(step(compiled), rounds),
        "SDPA ms": milliseconds(sdpa, rounds),
        "SDPA step ms": milliseconds(step(sdpa), 3),
        "stored ms": None if causal else milliseconds(lambda: _stored(q, k, v), 3),
        "peak MiB": peak_memory(step(ours), "cuda") / 2**20,
        "tensors MiB": 4 * q.numel() * 2 / 2**20,
        "error": error,
        "compiled, same bits": torch.equal(compiled(), ours()),
    }
    row["SDPA, times heedful"] = row["SDPA ms"] / row["forward ms"]
    row["SDPA step, times heedful"] = row["SDPA step ms"] / row["step ms"]
    row["stored, times heedful"] = None if causal else row["stored ms"] / row["forward ms"]
    return row


def _error(out, q, k, v, few, causal: bool) -> float:
    """Of some rows, against float64."""
    weights = (q[0, :, few].double() @ k[0].double().mT + 1).square()
    if causal:
        weights *= torch.arange(k.shape[2], device=k.device) <= few[:, None]
    exact = weights @ v[0].double() / weights.sum(-1, keepdim=True)
    return ((out[0, :, few] - exact).norm() / exact.norm()).item()


def _stored(q, k, v):
    """φ(q) (φ(k)ᵀ [v, 1]), the features side by side in memory."""

    def features(x):
        x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
        return (x[..., :, None] * x[..., None, :]).flatten(-2)

    heard = features(k).mT @ torch.cat([v, torch.ones_like(v[..., :1])], -1)
    out = features(q) @ heard
    return out[..., :-1] / out[..., -1:]
