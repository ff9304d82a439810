"""B5: kernels in place of softmax, and what each costs."""

from __future__ import annotations

import torch
from torch import Tensor

from ..attention import FeatureMap, Polynomial, attend
from ..attention.measure import seconds
from .claim import claim
from .costs import flops, memory, over, plain_attention, triple
from .documents import B
from .evidence import at_least, at_most, curve, exponent, note, same


def shifted_cosine(q: Tensor, k: Tensor) -> Tensor:
    """cos(q, k) + 0.2: between −0.8 and 1.2, and 1.2 with oneself."""
    return torch.nn.functional.cosine_similarity(q.unsqueeze(-2), k.unsqueeze(-3), dim=-1) + 0.2


def _features(x: Tensor) -> Tensor:
    """φ with φ(q)·φ(k) = cos(q, k) + 0.2."""
    return torch.cat([x / x.norm(dim=-1, keepdim=True), torch.full_like(x[..., :1], 0.2**0.5)], -1)


@claim(
    "B5.1",
    B,
    "The normaliser of kernel attention never vanishes if and only if the similarity keeps one sign.",
    stated="if and only if",
    corrected="If, not only if. Two tokens attending to each other by cos(q, k) + 0.2: the similarity "
    "takes both signs, the normaliser lies between 0.4 and 2.4.",
)
def normaliser(draw, *, both_signs=shifted_cosine):
    for _ in range(5):
        n, d = draw.integer(1, 9), draw.integer(1, 6)
        q, k = draw.normal(n, d), draw.normal(n, d)
        total = (q @ k.T + 1).square().sum(1)
        yield at_least("one sign: smallest normaliser of (qᵀk + 1)²", float(total.min()), 1e-12)
    angles = torch.linspace(0, torch.pi, 721, dtype=torch.float64)
    pair = torch.stack(
        [
            torch.stack([torch.ones_like(angles), torch.zeros_like(angles)], -1),
            torch.stack([angles.cos(), angles.sin()], -1),
        ],
        1,
    )
    sim = both_signs(pair, pair)  # (angles, 2, 2)
    total = sim.sum(-1)
    takes_both = float(min(sim.max(), -sim.min()))
    yield at_most(
        "both signs: smallest |normaliser| over all pairs of tokens",
        float(total.abs().min()),
        1e-6,
        role="detail",
    )
    yield at_least(
        "it takes both signs: the smaller of max sim and −min sim", takes_both, 0.1, role="corrected"
    )
    yield at_least("its smallest |normaliser|", float(total.abs().min()), 0.1, role="corrected")
    x = draw.normal(2, 3)
    sim = shifted_cosine(x, x)
    literal = sim @ x / sim.sum(1, keepdim=True)
    yield same(
        "attend with that kernel",
        attend(x, x, x, similarity=FeatureMap(_features)),
        literal,
        role="corrected",
    )
    yield curve(
        "a similarity of both signs",
        "cos + 0.2",
        angles[::40],
        sim_between(angles[::40]),
        across="angle",
        up="value",
    )
    yield curve(
        "a similarity of both signs", "normaliser", angles[::40], total[::40, 0], across="angle", up="value"
    )


def sim_between(angles: Tensor) -> Tensor:
    return angles.cos() + 0.2


def quadratic_features(x: Tensor) -> Tensor:
    """φ(x) = (1, √2 x_i, x_i², √2 x_i x_j for i < j): φ(q)·φ(k) = (qᵀk + 1)²."""
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1], offset=1)
    return torch.cat(
        [torch.ones_like(x[..., :1]), 2**0.5 * x, x.square(), 2**0.5 * x[..., i] * x[..., j]], -1
    )


@claim(
    "B5.2",
    B,
    "(qᵀk + 1)² is the dot product of quadratic features.",
    stated="φ(x) = (1, √2x_i, x_i², √2x_ix_j)",
)
def quadratic_kernel(draw, *, phi=quadratic_features):
    for _ in range(5):
        n, m, d = draw.integer(1, 9), draw.integer(1, 9), draw.integer(1, 7)
        q, k, v = draw.normal(n, d), draw.normal(m, d), draw.normal(m, 3)
        yield same("φ(q)·φ(k) against (qᵀk + 1)²", phi(q) @ phi(k).T, (q @ k.T + 1).square(), tolerance=1e-12)
        by_features = phi(q) @ (phi(k).T @ v) / (phi(q) @ phi(k).sum(0)).unsqueeze(1)
        factored = attend(q, k, v, similarity=Polynomial(2), strategy="factored")
        yield same("attend, factored, against φ(q)(φ(k)ᵀv)", factored, by_features)
        yield same(
            "attend, all pairs, against the same",
            attend(q, k, v, similarity=Polynomial(2), strategy="reference"),
            by_features,
        )


LENGTHS = (128, 256, 512, 1024, 2048)
WIDTHS = (8, 16, 32, 64, 128)


@claim(
    "B5.3",
    B,
    "Softmax attention costs O(N²(D + M)) time and O(N(N + M + D)) space.",
    stated="O(N²(D+M)) time, O(N(N+M+D)) space",
    corrected="So does the plain algorithm. Space is a matter of the algorithm: tile by tile, the same "
    "result is had with memory that grows no faster than N.",
)
def softmax_costs(draw, *, plain=plain_attention, tiled="tiled"):
    q, k, v = draw.normal(300, 8), draw.normal(300, 8), draw.normal(300, 5)
    yield same(
        "tiled against plain",
        attend(q, k, v, strategy=tiled),
        plain_attention(q / 8**0.5, k, v),
        role="corrected",
    )
    if not draw.first:
        return

    def at(n, d=16, width=16):
        q, k, v = triple(n, d, width)
        return lambda: plain(q, k, v)

    yield exponent("plain, time in N", LENGTHS, over(LENGTHS, flops, at), equals=2, within=0.05, unit="FLOPs")
    yield exponent(
        "plain, time in D + M",
        [2 * w for w in WIDTHS],
        over(WIDTHS, flops, lambda w: at(256, w, w)),
        equals=1,
        within=0.05,
        unit="FLOPs",
        size="D + M",
    )
    yield exponent(
        "plain, space in N", LENGTHS, over(LENGTHS, memory, at), equals=2, within=0.1, unit="bytes held"
    )
    # From where tiles are full: the longest lengths tell.
    long = [1024, 1536, 2048, 2560, 3072]
    held = over(long, memory, lambda n: _attending(n, tiled))
    yield exponent(
        "by tiles, as stated of any", long, held, equals=2, within=0.2, unit="bytes held", role="detail"
    )
    yield exponent("by tiles", long, held, most=1, within=0.1, unit="bytes held", role="corrected")


def _attending(n: int, strategy: str):
    q, k, v = triple(n, 4, 4)
    return lambda: attend(q, k, v, strategy=strategy)


def stored(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """φ(q)(φ(k)ᵀv), with the features of everyone held at once, all D² of them."""
    features = [torch.einsum("ni,nj->nij", x, x).flatten(1) for x in (q, k)]
    return features[0] @ (features[1].T @ v) / (features[0] @ features[1].sum(0)).unsqueeze(1)


def recomputed(q: Tensor, k: Tensor, v: Tensor, rows: int = 64) -> Tensor:
    """The same, the features of a few at a time: each is made, used and forgotten."""
    v = torch.cat([v, torch.ones_like(v[:, :1])], 1)
    total = torch.zeros(k.shape[1] ** 2, v.shape[1], dtype=v.dtype)
    for some, said in zip(k.split(rows), v.split(rows), strict=True):
        total += torch.einsum("ni,nj->nij", some, some).flatten(1).T @ said
    out = torch.empty(len(q), v.shape[1] - 1, dtype=v.dtype)
    for start in range(0, len(q), rows):
        some = q[start : start + rows]
        sums = torch.einsum("ni,nj->nij", some, some).flatten(1) @ total
        out[start : start + rows] = sums[:, :-1] / sums[:, -1:]
    return out


@claim(
    "B5.4",
    B,
    "Factored quadratic attention costs O(ND³) time and O(ND + D³) space, and wins when N is well above D².",
    stated="O(ND³) time, O(ND + D³) space; better for N ≫ D²",
    corrected="The space is O(ND + D³) only if the features are recomputed as they are used; stored, they "
    "take ND².",
)
def factored_costs(draw, *, by_features=recomputed, keep=stored, fast="factored"):
    q, k, v = draw.normal(150, 4), draw.normal(150, 4), draw.normal(150, 3)
    truth = attend(q, k, v, similarity=Polynomial(2, constant=0.0), strategy="reference")
    yield same("features recomputed, against all pairs", by_features(q, k, v), truth)
    yield same("features stored, against all pairs", keep(q, k, v), truth)

    if not draw.first:
        return

    def at(way, n, d):
        given = triple(n, d)
        return lambda: way(*given)

    widths = (8, 12, 16, 24, 32)
    yield exponent(
        "time in N",
        LENGTHS,
        over(LENGTHS, flops, lambda n: at(by_features, n, 16)),
        equals=1,
        within=0.05,
        unit="FLOPs",
    )
    yield exponent(
        "time in D",
        widths,
        over(widths, flops, lambda d: at(by_features, 512, d)),
        equals=3,
        within=0.2,
        unit="FLOPs",
        size="width",
    )
    held = {way: over(widths, memory, lambda d, way=way: at(way, 2048, d)) for way in (by_features, keep)}
    yield exponent(
        "space of stored features in D, as stated",
        widths,
        held[keep],
        equals=1,
        within=0.4,
        unit="bytes held",
        size="width",
        role="detail",
    )
    yield exponent(
        "space of stored features in D",
        widths,
        held[keep],
        equals=2,
        within=0.25,
        unit="bytes held",
        size="width",
        role="corrected",
    )
    growth = held[by_features][-1] / held[keep][-1]
    yield at_most("memory recomputed over stored, at D = 32", growth, 0.3, role="corrected")
    yield from _crossover(fast)


def _crossover(fast: str):
    """Where the factored way overtakes all pairs on this machine, for D = 8."""
    d, ratios = 8, {}
    for n in (32, 128, 256, 512, 1024):
        q, k, v = triple(n, d)
        pace = {}
        for way in (fast, "reference"):
            call = lambda way=way: attend(q, k, v, similarity=Polynomial(2), strategy=way)  # noqa: E731, B023
            pace[way] = seconds(call, least=0.01, summary=min)
        ratios[n] = pace["reference"] / pace[fast]
    yield at_least("all pairs over factored, time at N = 16·D²", ratios[1024], 1.0)
    wins = [n for n, ratio in ratios.items() if ratio > 1]
    yield note("on this machine the factored way wins from N =", float(min(wins, default=float("inf"))))
    yield curve(
        "all pairs against factored, D = 8",
        "time, all pairs over factored",
        list(ratios),
        list(ratios.values()),
        across="N",
        up="time, all pairs over factored",
        log="xy",
    )
