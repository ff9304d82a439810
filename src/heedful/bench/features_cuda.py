"""Feature maps on a GPU: φ(q)·φ(k) by features in registers, beside the same in plain torch and beside SDPA.

8 heads of 65,536 positions, 64 wide, in bfloat16. SDPA computes softmax attention of the same shape: it is
what one would run instead, and is all pairs. "Torch" keeps the features in memory: over everyone as two
products, over the past in chunks, all of them at once. "Compiled" is our call under torch.compile, which runs
the same kernels as operators of their own.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .. import Alibi, Causal, EluKernel, Everyone, FeatureMap, RandomFeatures, attend, step
from ..attention.measure import peak_memory
from ..attention.similarity import Similarity
from ..attention.strategies import Call, Scan, ScanState
from .gat_cuda import milliseconds

HEADS, LENGTH, DIM = 8, 65_536, 64


def softplus(x):
    return F.softplus(x)


SIMILARITIES: tuple[Similarity, ...] = (
    EluKernel(),
    RandomFeatures(256),
    FeatureMap(softplus, positive=True),
)


def run(*, quick: bool, device: str):
    length, rounds = (4096, 3) if quick else (LENGTH, 10)
    rows = [_row(s, length, causal, rounds) for s in SIMILARITIES for causal in (False, True)]
    steps = [_decoding(s, rounds) for s in SIMILARITIES]
    slowest = {
        name: min(row[f"{name}, times heedful"] for row in rows)
        for name in ("torch", "torch step", "SDPA", "SDPA step")
    }
    error = max(row["error"] for row in rows)
    ours, torchs = (max(row[name] for row in steps) for name in ("step us", "torch us"))
    verdict = (
        f"against torch at least {slowest['torch']:.1f}× forward, {slowest['torch step']:.1f}× in training; "
        f"against SDPA {slowest['SDPA']:.1f}× and {slowest['SDPA step']:.1f}×; peak in training "
        f"{max(row['peak MiB'] for row in rows):.0f} MiB where the tensors have {rows[0]['tensors MiB']:.0f} "
        f"(torch {max(row['torch peak MiB'] for row in rows):.0f}); decoding, batch of one: a token in "
        f"{ours:.0f} µs, in torch {torchs:.0f}; largest error {error:.1e}"
    )
    return rows + steps, verdict, min(slowest.values()) >= 1


def _row(similarity: Similarity, length: int, causal: bool, rounds: int) -> dict:
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, length, DIM, device="cuda").bfloat16().unbind()
    neighbors = Causal() if causal else Everyone()
    position = Alibi() if causal else None

    def ours(q=q, k=k, v=v):
        way = "scan" if causal else "factored"
        return attend(q, k, v, similarity=similarity, neighbors=neighbors, position=position, strategy=way)

    def plain(q=q, k=k, v=v):
        if not causal:
            return _stored(similarity, q, k, v)
        wide = (x.float() for x in (q, k, v))
        return Scan().run(Call(*wide, similarity, neighbors, position)).to(q.dtype)

    def sdpa(q=q, k=k, v=v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def training(call):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        gradient = torch.randn_like(v)
        return lambda: torch.autograd.grad(call(*leaves), leaves, gradient)

    torch.compiler.reset()
    compiled = torch.compile(ours, fullgraph=True, dynamic=False)
    row = {
        "map": repr(similarity),
        "causal": causal,
        "forward ms": milliseconds(ours, rounds),
        "step ms": milliseconds(training(ours), rounds),
        "compiled ms": milliseconds(compiled, rounds),
        "compiled step ms": milliseconds(training(compiled), rounds),
        "torch ms": milliseconds(plain, rounds),
        "torch step ms": milliseconds(training(plain), rounds),
        "SDPA ms": milliseconds(sdpa, rounds),
        "SDPA step ms": milliseconds(training(sdpa), 3),
        "peak MiB": peak_memory(training(ours), "cuda") / 2**20,
        "torch peak MiB": peak_memory(training(plain), "cuda") / 2**20,
        "tensors MiB": 4 * q.numel() * 2 / 2**20,
        "error": _error(ours(), similarity, q, k, v, causal),
        "compiled, same bits": torch.equal(compiled(), ours()),
    }
    for rival in ("torch", "SDPA"):
        row[f"{rival}, times heedful"] = row[f"{rival} ms"] / row["forward ms"]
        row[f"{rival} step, times heedful"] = row[f"{rival} step ms"] / row["step ms"]
    return row


def _stored(similarity, q, k, v):
    """φ(q) (φ(k)ᵀ [v, 1]), the features in memory, in float32 as they are everywhere else."""
    q, k = similarity.prepare(q.float(), k.float())
    heard = similarity.key_features(k).mT @ torch.cat([v, torch.ones_like(v[..., :1])], -1).float()
    out = similarity.query_features(q) @ heard
    return (out[..., :-1] / out[..., -1:]).to(v.dtype)


def _decoding(similarity: Similarity, rounds: int) -> dict:
    """One token after many, a batch of one, eight heads."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, 1, DIM, device="cuda").unbind()
    with torch.no_grad():
        _, state = step(q, k, v, similarity=similarity)
        ours = milliseconds(lambda: step(q, k, v, state, similarity=similarity), 5 * rounds)
        rival = milliseconds(lambda: _step_in_torch(similarity, q, k, v, state), 5 * rounds)
    return {"map": repr(similarity), "decoding": True, "step us": 1e3 * ours, "torch us": 1e3 * rival}


def _step_in_torch(similarity, q, k, v, state: ScanState):
    q, k = similarity.prepare(q, k)
    said = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    total = state.total + similarity.key_features(k).mT @ said
    heard = similarity.query_features(q) @ total
    return heard[..., :-1] / heard[..., -1:], total


def _error(out, similarity, q, k, v, causal: bool) -> float:
    """Of some rows, against float64."""
    few = torch.randint(k.shape[2], (64,), device="cuda")
    q, k = similarity.prepare(q[0, :, few].double(), k[0].double())
    weights = similarity.query_features(q) @ similarity.key_features(k).mT
    if causal:
        distance = few[:, None] - torch.arange(k.shape[1], device=k.device)
        rates = Alibi().rates(HEADS, q)[:, None, None]
        weights *= torch.exp(-rates * distance.clamp_min(0)) * (distance >= 0)
    exact = weights @ v[0].double() / weights.sum(-1, keepdim=True)
    return ((out[0, :, few] - exact).norm() / exact.norm()).item()
