"""B3, B4: the size of a dot product, and attention that takes the best only."""

from __future__ import annotations

import torch

from ..attention import Argmax, Softmax, attend
from .claim import claim
from .documents import B
from .evidence import at_least, at_most, curve, mean, same

SAMPLES = 40_000


def products(draw, centre, std: float):
    """q·k for independent q, k ~ N(μ, σ²I)."""
    q, k = (centre + draw.normal(SAMPLES, len(centre), std=std) for _ in range(2))
    return (q * k).sum(1)


def _law(draw):
    d = draw.integer(2, 33)
    return draw.normal(d), float(draw.uniform(1, low=0.5, high=1.5))


def expected(centre, std: float) -> float:
    return float(centre.square().sum())


def variance(centre, std: float) -> float:
    return float(2 * std**2 * centre.square().sum() + len(centre) * std**4)


@claim("B3.1", B, "For independent q, k ~ N(μ, σ²I), E[qᵀk] = ‖μ‖².", stated="E[qᵀk] = ‖μ‖²")
def mean_product(draw, *, formula=expected):
    for _ in range(2):
        centre, std = _law(draw)
        off = (products(draw, centre, std) - formula(centre, std)) / variance(centre, std) ** 0.5
        yield mean("(q·k − ‖μ‖²), in standard deviations", off, equals=0.0, within=0.05)


@claim(
    "B3.2",
    B,
    "For independent q, k ~ N(μ, σ²I), Var(qᵀk) = 2σ²‖μ‖² + dσ⁴, which is d for standard normals.",
    stated="Var(qᵀk) = 2σ²‖μ‖² + dσ⁴",
)
def variance_of_product(draw, *, formula=variance):
    for _ in range(2):
        centre, std = _law(draw)
        squares = (products(draw, centre, std) - expected(centre, std)).square() / formula(centre, std)
        yield mean("Var(q·k) over 2σ²‖μ‖² + dσ⁴", squares, equals=1.0, within=0.1)
        d = draw.integer(2, 65)
        plain = products(draw, torch.zeros(d, dtype=torch.float64), 1.0).square()
        yield mean(
            "standard normals: Var(q·k) over d", plain / formula(torch.zeros(d), 1.0), equals=1.0, within=0.1
        )


@claim(
    "B3.3",
    B,
    "Dividing by √d keeps the scores at variance 1; elsewhere the variance is given as d².",
    stated="scale √d; Var(qᵀk) = d²",
    corrected="Divide by √d, because the variance is d, not d².",
)
def scale(draw, *, power=0.5, stated=2.0):
    sizes = [4, 16, 64]
    for d in sizes:
        raw = products(draw, torch.zeros(d, dtype=torch.float64), 1.0)
        yield mean("variance of q·k/√d", (raw / d**power).square(), equals=1.0, within=0.1)
        yield mean(
            "Var(q·k) over d², as printed", raw.square() / d**stated, equals=1.0, within=0.1, role="detail"
        )
        yield mean("Var(q·k) over d", raw.square() / d, equals=1.0, within=0.1, role="corrected")


KEYS = [[1, 2, 0], [0, 3, 4], [5, 0, 0], [0, 0, 1]]
VALUES = [[2, 0, 1], [1, 4, 3], [0, -1, 4], [1, 0, -1]]
QUERY = [[1, 1, 2]]


@claim(
    "B4.1",
    B,
    "Attention that takes the best key only answers the query (1, 1, 2) with (1, 4, 3).",
    stated="(1, 4, 3)",
)
def hard_attention(draw, *, similarity=None):
    similarity = similarity or Argmax()
    q, k, v = (torch.tensor(x, dtype=torch.float64) for x in (QUERY, KEYS, VALUES))
    yield same("the given query, keys and values", attend(q, k, v, similarity=similarity), [[1, 4, 3]])
    for _ in range(3):
        n, m, d, width = (draw.integer(1, 9) for _ in range(4))
        q, k, v = draw.normal(n, d), draw.normal(m, d), draw.normal(m, width)
        best = torch.stack([v[max(range(m), key=lambda j, i=i: float(q[i] @ k[j]))] for i in range(n)])
        yield same("random ones against a loop", attend(q, k, v, similarity=similarity), best)


@claim(
    "B4.2",
    B,
    "Argmax attention passes no gradient to queries and keys.",
    stated="the gradient is zero",
)
def hard_gradients(draw, *, similarity=None):
    similarity = similarity or Argmax()
    for _ in range(3):
        n, m, d = (draw.integer(2, 9) for _ in range(3))
        q, k, v = (draw.normal(rows, d).requires_grad_() for rows in (n, m, m))
        out = attend(q, k, v, similarity=similarity)
        of_q, of_k, of_v = torch.autograd.grad(
            (out * draw.normal(*out.shape)).sum(), (q, k, v), allow_unused=True, materialize_grads=True
        )
        yield at_most(
            "largest gradient of a query or key", max(float(of_q.abs().max()), float(of_k.abs().max())), 0.0
        )
        yield at_least("largest gradient of a value", float(of_v.abs().max()), 1e-3)
        step = 1e-7 * draw.normal(m, d)
        moved = attend(q, k + step, v, similarity=similarity)
        yield same("output after a small step of the keys", moved, out)
    q, k, v = draw.normal(4, 3), draw.normal(6, 3), draw.normal(6, 3)
    betas = [0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0]
    hard = attend(q, k, v, similarity=Argmax())
    gaps, sizes = [], []
    for beta in betas:
        key = k.clone().requires_grad_()
        out = attend(q, key, v, similarity=Softmax(scale=beta))
        gaps.append(float((out.detach() - hard).abs().max()))
        sizes.append(float(torch.autograd.grad(out.sum(), key)[0].norm()))
    yield at_most(
        "softmax against argmax at β = 10⁶",
        float((attend(q, k, v, similarity=Softmax(scale=1e6)) - hard).abs().max()),
        1e-2,
    )
    yield curve(
        "from soft to hard",
        "distance to argmax",
        betas,
        [max(g, 1e-18) for g in gaps],
        across="β",
        up="largest difference",
        log="x",
    )
    yield curve("what the keys hear of it", "‖∂out/∂k‖", betas, sizes, across="β", up="‖∂out/∂k‖", log="x")
