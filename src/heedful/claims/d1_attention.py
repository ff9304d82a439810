"""D1: how gradients shrink, how attention gets cheaper, and what relative attention can be."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..attention import EluKernel, FeatureMap, Relative, Softmax, Window, attend
from ..attention.strategies.projected import Projected
from ..nn import RelativeMaxPool
from ..probes import jacobian_spectrum
from .claim import claim
from .costs import flops, over, triple
from .documents import D
from .evidence import at_least, at_most, curve, exponent, mean, note, same


def chain(x: Tensor, weights: Tensor) -> Tensor:
    """relu(w_n relu(… relu(w_1 x)))."""
    for w in weights:
        x = F.relu(w * x)
    return x


def slope(net, x: Tensor, weights: Tensor) -> float:
    return float(torch.func.grad(lambda z: net(z, weights))(x))


@claim("D1.1", D, "A chain of ReLUs with unit weights has a slope between 0 and 1.", stated="0 ≤ |f'| ≤ 1")
def unit_chain(draw, *, net=chain):
    sizes = []
    for _ in range(20):
        depth = draw.integer(1, 30)
        sizes.append(abs(slope(net, draw.normal(1)[0], torch.ones(depth, dtype=torch.float64))))
    yield at_most("largest |f'| of twenty chains", max(sizes), 1.0)
    yield at_least("smallest |f'|", min(sizes), 0.0)
    positive = slope(net, draw.uniform(1, low=0.1, high=1.0)[0], torch.ones(9, dtype=torch.float64))
    yield same("reached: |f'| at a positive x", positive, 1.0)


@claim(
    "D1.2",
    D,
    "With weights w_i the slope of the chain is at most ∏|w_i|.",
    stated="(to be solved)",
)
def weighted_chain(draw, *, net=chain):
    for _ in range(10):
        weights = draw.normal(draw.integer(1, 8), std=1.5)
        bound = float(weights.abs().prod())
        yield at_most("|f'| over ∏|w_i|", abs(slope(net, draw.normal(1)[0], weights)) / bound, 1 + 1e-12)
        reached = slope(net, draw.uniform(1, low=0.1, high=1.0)[0], weights.abs())
        yield same("reached with positive weights and x: |f'| over ∏|w_i|", reached / bound, 1.0)


def sigmoid_steps(x: Tensor, W: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        x = torch.sigmoid(W @ x)
    return x


@claim(
    "D1.3",
    D,
    "For x_{t+1} = sigmoid(W x_t) with σ_max(W) = 1/4, σ_max(∂x_n/∂x_1) ≤ (1/16)^{n−1}.",
    stated="(1/16)^{n−1}",
)
def shrinking(draw, *, steps=sigmoid_steps):
    d = draw.integer(2, 8)
    W = draw.normal(d, d)
    W = W / (4 * torch.linalg.matrix_norm(W, 2))
    x = draw.normal(d)
    lengths, found = list(range(2, 11)), []
    for n in lengths:
        largest = float(jacobian_spectrum(lambda z, n=n: steps(z, W, n - 1), x)[0])
        found.append(largest)
        yield at_most("σ_max(∂x_n/∂x_1) over (1/16)^{n−1}", largest * 16.0 ** (n - 1), 1 + 1e-9)
    name, labels = "the Jacobian against depth", {"across": "n", "up": "σ_max(∂x_n/∂x_1)", "log": "y"}
    yield curve(name, "measured", lengths, found, **labels)
    yield curve(name, "(1/16)^{n−1}", lengths, [16.0 ** (1 - n) for n in lengths], bound=True, **labels)


def kernel_cost(n: int) -> float:
    q, k, v = triple(n, 16)
    return flops(lambda: attend(q, k, v, similarity=EluKernel(), strategy="factored"))


@claim("D1.4", D, "Kernels make attention linear in the length.", stated="O(n)")
def linear_attention(draw, *, cost=kernel_cost):
    lengths = (256, 512, 1024, 2048, 4096)
    yield exponent(
        "elu kernel, factored", lengths, [cost(n) for n in lengths], equals=1, within=0.05, unit="FLOPs"
    )
    n, d = draw.integer(2, 40), draw.integer(1, 6)
    q, k, v = draw.normal(n, d), draw.normal(n, d), draw.normal(n, 3)
    ways = [attend(q, k, v, similarity=EluKernel(), strategy=way) for way in ("factored", "reference")]
    yield same("factored against all pairs", *ways)


def linear_kernel(q: Tensor, k: Tensor) -> Tensor:
    return (q * k).sum(-1)


@claim(
    "D1.5",
    D,
    "The similarity of every kernel is at least 0.",
    stated="sim(q, k) ≥ 0 holds for all kernels",
    corrected="k(x, x) ≥ 0 does. k(q, k) need not: the linear kernel q·k is negative for half of all "
    "pairs. Kernels with positive features, such as elu + 1, are positive.",
)
def kernels_are_positive(draw, *, kernel=linear_kernel):
    d = draw.integer(2, 20)
    q, k = draw.normal(20_000, d), draw.normal(20_000, d)
    found = kernel(q, k)
    yield at_least("smallest value of the linear kernel", float(found.min()), 0.0)
    negative = (linear_kernel(q, k) < 0).double()
    yield mean("share of pairs where it is negative", negative, equals=0.5, within=0.05, role="corrected")
    yield at_least("smallest q·q", float(linear_kernel(q, q).min()), 0.0, role="corrected")
    phi = EluKernel()
    positive = (phi.query_features(q) * phi.key_features(k)).sum(-1)
    yield at_least("smallest value of the elu kernel", float(positive.min()), 0.0, role="corrected")
    few = [draw.normal(12, d) for _ in range(3)]
    gram = linear_kernel(few[0].unsqueeze(1), few[0].unsqueeze(0))
    yield at_least(
        "yet positive semi-definite: smallest eigenvalue",
        float(torch.linalg.eigvalsh(gram)[0]),
        -1e-9,
        role="corrected",
    )
    sums = gram @ few[2]
    literal = sums / gram.sum(1, keepdim=True)
    out = attend(few[0], few[0], few[2], similarity=FeatureMap(lambda x: x))
    yield same("attend computes with it all the same", out, literal, tolerance=1e-8, role="corrected")


def low_rank(P: Tensor, V: Tensor, k: int) -> Tensor:
    """P V by the k leading singular triples of P: U (S (Wᵀ V)), in O(nkd) once they are known."""
    U, S, Wt = torch.linalg.svd(P)
    return U[:, :k] @ (S[:k, None] * (Wt[:k] @ V))


@claim(
    "D1.6",
    D,
    "With a context matrix of rank k, attention takes O(nkd) by its singular vectors.",
    stated="O(nkd)",
)
def by_singular_vectors(draw, *, product=low_rank):
    for _ in range(3):
        n, d, k = draw.integer(10, 40), draw.integer(1, 6), draw.integer(1, 6)
        P, V = draw.normal(n, k) @ draw.normal(k, n), draw.normal(n, d)
        yield same("U_k S_k (W_kᵀ V) against P V", product(P, V, k), P @ V)
    sizes, ranks, d = (256, 512, 1024, 2048, 4096), (4, 8, 16, 32, 64), 8

    def at(n, k):
        left, right, V = torch.randn(n, k), torch.randn(k, n), torch.randn(n, d)
        return lambda: left @ (right @ V)

    yield exponent("in n", sizes, over(sizes, flops, lambda n: at(n, 8)), equals=1, within=0.05, unit="FLOPs")
    yield exponent(
        "in k",
        ranks,
        over(ranks, flops, lambda k: at(512, k)),
        equals=1,
        within=0.05,
        unit="FLOPs",
        size="rank",
    )


def projections(P: Tensor, Q: Tensor, K: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """C and D (k × n) with P V = Q (C K)ᵀ D V for every V.

    P = U S Wᵀ has rank k. D = Wᵀ gives D V; Q (C K)ᵀ must be U S: C K = ((Q⁺ U S))ᵀ, so C = (Q⁺ U S)ᵀ K⁺.
    """
    U, S, Wt = torch.linalg.svd(P, full_matrices=False)
    want = U[:, :k] * S[:k]  # (n, k)
    C = (torch.linalg.pinv(Q) @ want).T @ torch.linalg.pinv(K)
    return C, Wt[:k]


@claim(
    "D1.7",
    D,
    "If the context matrix P has rank k, there are projections C, D of k × n with PV = Q(CK)ᵀDV.",
    stated="such projections exist",
    corrected="They exist if the columns of P lie among those of Q, as they do for P = QKᵀ of rank k ≤ d: "
    "C and D follow from its singular vectors. For a P of rank k that has nothing to do with Q there are "
    "none.",
)
def linformer(draw, *, make=projections):
    n, d = draw.integer(12, 30), draw.integer(3, 7)
    k = draw.integer(1, d + 1)
    Q, V = draw.normal(n, d), draw.normal(n, 4)
    K = draw.normal(n, k) @ draw.normal(k, d)  # of rank k, so that Q Kᵀ is
    P = Q @ K.T
    C, Dm = make(P, Q, K, k)
    yield same("Q(CK)ᵀDV against PV, P = QKᵀ of rank k", Q @ (C @ K).T @ (Dm @ V), P @ V, tolerance=1e-9)
    yield same("C and D are k × n", [*C.shape, *Dm.shape], [k, n, k, n])
    other, keys = draw.normal(n, k) @ draw.normal(k, n), draw.normal(n, d)
    C2, D2 = make(other, Q, keys, k)
    best = Q @ (C2 @ keys).T @ (D2 @ V)
    far = float((best - other @ V).norm() / (other @ V).norm())
    yield at_most("the same for any P of rank k: what the best leaves, relative", far, 1e-6, role="detail")
    yield at_least("what the best leaves", far, 0.05, role="corrected")
    way = Projected(rank=k, key_projection=C / C.norm(), value_projection=Dm)
    ours = attend(Q, K, V, similarity=Softmax(scale=1.0), strategy=way, exact=False)
    literal = torch.softmax(Q @ (C / C.norm() @ K).T, 1) @ (Dm @ V)
    yield same("heedful's projected strategy with these C and D", ours, literal, role="corrected")


def kernel_table(w: tuple[float, ...]) -> Tensor:
    """p_{i−j} = log w: w = (w₁, w₀, w₋₁) are the weights of x_{i−1}, x_i and x_{i+1}."""
    return torch.tensor([w[2], w[1], w[0]], dtype=torch.float64).log()  # entries −1, 0, +1 of i − j


@claim(
    "D1.8",
    D,
    "Relative attention can be the convolution with w = (2, 0, 1).",
    stated="p₁ = ln 2, p₀ = −∞, p₋₁ = 0, all others −∞; W_Q or W_K zero; W_V = 3",
)
def convolution_by_attention(draw, *, table=kernel_table, value=3.0):
    n = draw.integer(5, 60)
    x = draw.normal(n, 1)
    blank = torch.zeros(n, 1, dtype=torch.float64)
    near = {"similarity": Softmax(scale=1.0), "neighbors": Window(1)}
    out = attend(blank, x, value * x, position=Relative(table((2.0, 0.0, 1.0))), **near)
    yield same("against 2x_{i−1} + x_{i+1}", out[1:-1], 2 * x[:-2] + x[2:])
    wide = torch.full((2 * n - 1,), -torch.inf, dtype=torch.float64)
    wide[n - 2 : n + 1] = table((2.0, 0.0, 1.0))
    everyone = attend(blank, x, value * x, similarity=Softmax(scale=1.0), position=Relative(wide))
    yield same("the same over everyone, p = −∞ beyond", everyone[1:-1], 2 * x[:-2] + x[2:])
    w = tuple(float(v) for v in draw.uniform(3, low=0.1, high=2.0))
    other = attend(blank, x, sum(w) * x, position=Relative(table(w)), **near)
    yield same("random positive kernels", other[1:-1], w[0] * x[:-2] + w[1] * x[1:-1] + w[2] * x[2:])


@claim(
    "D1.9",
    D,
    "Relative attention can be max-pooling, for x ≥ 0.",
    stated="queries and keys β x, a window by position, β large",
    corrected="Where x_i > 0 it does, as β grows. Where x_i = 0 the query is silent and the window is "
    "averaged. A constant query (β in place of βx_i) mends it.",
)
def max_pooling(draw, *, pool=F.max_pool1d, query=lambda x, beta: beta * x):
    n, beta = draw.integer(8, 40), 1e7
    x = draw.uniform(n, 1, low=0.05, high=1.0)
    window = Window(1)
    truth = pool(x.T.unsqueeze(0), 3, stride=1, padding=1)[0].T

    def attended(x: Tensor, ask=query) -> Tensor:
        return attend(ask(x, beta), x, x, similarity=Softmax(scale=1.0), neighbors=window)

    yield same("x > 0: against max-pooling", attended(x), truth, tolerance=1e-4)
    zero = x.clone()
    zero[n // 2] = 0.0
    wanted = F.max_pool1d(zero.T.unsqueeze(0), 3, stride=1, padding=1)[0].T
    yield same(
        "where x_i = 0: against max-pooling",
        attended(zero)[n // 2],
        wanted[n // 2],
        tolerance=1e-4,
        role="detail",
    )
    average = zero[n // 2 - 1 : n // 2 + 2].mean(0)
    silent = attend(beta * zero, zero, zero, similarity=Softmax(scale=1.0), neighbors=window)
    yield same("where x_i = 0: against the mean of the window", silent[n // 2], average, role="corrected")
    asked = attended(zero, lambda x, beta: torch.full_like(x, beta))
    yield same("with a constant query: against max-pooling", asked, wanted, tolerance=1e-4, role="corrected")
    limit = RelativeMaxPool(3, stride=1, padding=1)(zero.T.unsqueeze(0))[0].T
    yield same("its limit, RelativeMaxPool", limit, wanted, role="corrected")
    yield note("what the mean falls short of the maximum where x_i = 0", float((wanted[n // 2] - average)[0]))
