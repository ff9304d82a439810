"""D2, D3, D4: high dimensions, normalised adjacency, and two studies."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..graphs import Graph
from ..nn import GCNConv
from .claim import claim
from .documents import D
from .evidence import at_least, at_most, curve, exponent, note, same
from .studies import judged


def gaussian(draw, k: int, d: int) -> Tensor:
    return draw.normal(k, d) / k**0.5


def distortion(points: Tensor, projection: Tensor) -> float:
    """The largest relative change of a squared distance between two points."""
    before, after = torch.pdist(points).square(), torch.pdist(points @ projection.T).square()
    return float((after / before - 1).abs().max())


@claim(
    "D2.1",
    D,
    "Johnson–Lindenstrauss: n points keep their distances within 1 ± ε in k ≥ 8 ln n/ε² dimensions.",
    stated="k ≥ 8 ln n / ε²",
)
def random_projections(draw, *, projection=gaussian):
    n, d = 40, 1500
    points = draw.normal(n, d)
    sizes = (75, 150, 300, 600, 1200)
    found = [distortion(points, projection(draw, k, d)) for k in sizes]
    # The lemma promises that one exists: a random one fails now and then, the best of three hardly ever.
    for epsilon in (0.3, 0.5):
        k = math.ceil(8 * math.log(n) / epsilon**2)
        best = min(distortion(points, projection(draw, k, d)) for _ in range(3))
        yield at_most(f"largest distortion at k = 8 ln n/ε², ε = {epsilon}", best, epsilon)
    yield exponent("largest distortion", sizes, found, equals=-0.5, within=0.2, unit="distortion", size="k")
    name, labels = "distortion of 40 points", {"across": "k", "up": "largest distortion", "log": "xy"}
    yield curve(name, "measured", sizes, found, **labels)
    yield curve(
        name, "√(8 ln n/k)", sizes, [(8 * math.log(n) / k) ** 0.5 for k in sizes], bound=True, **labels
    )


def packed(draw, n: int, delta: float, tries: int = 6000) -> int:
    """Unit vectors taken one by one as long as they are within δ of orthogonal to all before."""
    chosen = torch.empty(0, n)
    signs = (2 * draw.integers(2, tries, n) - 1).float() / n**0.5
    for vector in signs:
        if len(chosen) == 0 or float((chosen @ vector).abs().max()) <= delta:
            chosen = torch.cat([chosen, vector.unsqueeze(0)])
    return len(chosen)


def many_unit_vectors(draw, n: int, delta: float) -> tuple[int, float]:
    """exp(nδ²/8) random sign vectors of length 1, and the largest |cosine| between two of them.

    Two have |cos| > δ with a chance of 2 exp(−nδ²/2) at most, so among so many none do but rarely.
    """
    count = math.floor(math.exp(n * delta**2 / 8))
    vectors = (2 * draw.integers(2, count, n) - 1).float() / n**0.5
    cosines = (vectors @ vectors.T).fill_diagonal_(0)
    return count, float(cosines.abs().max())


@claim(
    "D2.2",
    D,
    "Rⁿ has exp(c n δ²) unit vectors that are pairwise within δ of orthogonal.",
    stated="exp(c n δ²) of them",
)
def almost_orthogonal(draw, *, vectors=many_unit_vectors):
    delta, sizes = 0.5, (150, 175, 200, 225, 250)
    counts, cosines = zip(*(vectors(draw, n, delta) for n in sizes), strict=True)
    for cosine in cosines:
        yield at_most("largest |cosine| among exp(nδ²/8) random sign vectors, δ = 0.5", cosine, delta)
    growth = math.log(counts[-1] / counts[0]) / (sizes[-1] - sizes[0]) / delta**2
    yield at_least("c: growth of log count per dimension, over δ²", growth, 0.12)
    yield at_least("vectors over dimensions, n = 250", counts[-1] / 250, 5)
    small = (8, 16, 24, 32)
    kept = [greedy(draw, n, delta) for n in small]
    yield at_least("taken one by one: vectors kept in R³² over 32", kept[-1] / 32, 4)
    labels = {"across": "n", "up": "vectors", "log": "y"}
    for title, at, found in (("exp(nδ²/8) at random", sizes, counts), ("taken one by one", small, kept)):
        yield curve(title, "within δ = 0.5 of orthogonal", at, found, **labels)
        yield curve(title, "orthogonal: n", at, at, bound=True, **labels)


def greedy(draw, n: int, delta: float) -> int:
    return packed(draw, n, delta, tries=2500)


@claim(
    "D3.1",
    D,
    "D̂^{−1/2}ÂD̂^{−1/2} normalises so that all rows sum to one.",
    stated="rows sum to one",
    corrected="Its rows do not sum to one; those of D̂⁻¹Â do. It is symmetric, and its largest eigenvalue "
    "is one.",
)
def symmetric_normalisation(draw, *, kind="symmetric"):
    for _ in range(3):
        graph = draw.graph(draw.integer(4, 15), draw.integer(2, 20))
        hub = torch.arange(1, graph.nodes)
        graph = (
            graph | Graph.from_edges(hub, torch.zeros_like(hub), nodes=graph.nodes).undirected()
        ).coalesce()
        graph = graph.with_edges(weight=None)
        ones = torch.ones(graph.nodes, 1)
        matrix = {
            k: GCNConv(1, 1, normalize=k).double().adjacency(graph).to_dense().double()
            for k in ("symmetric", "row")
        }
        rows = {k: m.sum(1) for k, m in matrix.items()}
        yield same("row sums of D̂^{−1/2}ÂD̂^{−1/2}", rows[kind], ones[:, 0])
        yield same("row sums of D̂⁻¹Â", rows["row"], ones[:, 0], tolerance=1e-6, role="corrected")
        S = matrix["symmetric"]
        yield same("D̂^{−1/2}ÂD̂^{−1/2} against its transpose", S, S.T, tolerance=1e-6, role="corrected")
        yield same(
            "its largest eigenvalue", torch.linalg.eigvalsh(S)[-1], 1.0, tolerance=1e-6, role="corrected"
        )


@claim(
    "D3.2",
    D,
    "Graph nets tell the topic of papers by whom they cite; GAT does it a little better than GCN.",
    stated="test accuracy on Cora: GCN 81.5 %, GAT 83.0 %",
    once=True,
)
def citations(draw, *, results=None):
    found = judged("cora", draw.runs) if results is None else results
    name = "cora" if found.of(dataset="cora", model="gcn")()("test") is not None else "citations"
    test = {model: found.of(dataset=name, model=model)()("test") for model in ("gcn", "gat")}
    yield note("judged", f"{found.about}, {name}")
    published = {"gcn": 81.5, "gat": 83.0}
    for model in ("gcn", "gat"):
        if name == "cora":
            yield at_most(
                f"{model}: distance from the published accuracy, points",
                abs(test[model] - published[model]),
                1.5,
            )
        else:
            yield at_least(f"{model} on the generated graph: test accuracy, %", test[model], 60)
    yield at_least("GAT less GCN, points", test["gat"] - test["gcn"], -1.0)
    yield note("GAT less GCN, points, measured", float(test["gat"] - test["gcn"]))


@claim(
    "D4.1",
    D,
    "In segmentation, a U-Net does better with its skips than without.",
    stated="skips help",
    once=True,
)
def skips(draw, *, results=None):
    found = judged("unet", draw.runs) if results is None else results
    data = found.values("dataset")[0]
    error = {
        skips: found.of(dataset=data, padding="same", skips=skips)()("pixel") for skips in ("with", "without")
    }
    yield note("judged", f"{found.about}, {data}")
    yield at_most("pixel error, with skips over without", error["with"] / error["without"], 0.95)
    yield note("pixel error with skips, %", error["with"])
    yield note("pixel error without, %", error["without"])
