"""A3: normalisation, dropout as ridge regression, and what gradient descent finds from zero."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from ..nn import BatchNorm, LayerNorm, moments_over
from .claim import claim
from .documents import A
from .evidence import at_least, at_most, curve, mean, note, same

GIVEN = [
    [[4, 3, 2], [1, 4, 3]],
    [[3, 4, 1], [4, 2, 2]],
    [[3, 2, 3], [4, 1, 2]],
    [[1, 1, 3], [4, 1, 2]],
]
AXES = {"batch": (0, 2), "layer": (1, 2), "instance": (2,)}
PRINTED = {
    "batch mean": [2.5, 2.5],
    "batch variance": [1.08, 1.42],
    "layer mean": [17 / 6, 16 / 6, 15 / 6, 12 / 6],
    "layer variance": [1.14, 1.22, 0.92, 1.33],
}
ROUNDED = 0.0051  # two decimals are printed


def loops(x: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Mean and variance as the definition has them, over plain lists of numbers."""
    samples, channels = range(x.shape[0]), range(x.shape[1])
    groups = {
        "batch": [[x[n, c] for n in samples] for c in channels],
        "layer": [[x[n, c] for c in channels] for n in samples],
        "instance": [[x[n, c]] for n in samples for c in channels],
    }[kind]
    flat = [torch.cat(list(group)) for group in groups]
    return torch.stack([g.mean() for g in flat]), torch.stack([(g - g.mean()).square().mean() for g in flat])


@claim(
    "A3.1",
    A,
    "The batch, layer and instance statistics of the given 4 × 2 × 3 tensor are as printed.",
    stated="batch μ = [2.5, 2.5], σ² = [1.08, 1.42]; layer μ = [17, 16, 15, 12]/6, σ² = [1.14, 1.22, .92, "
    "1.33]; instance σ² of sample 3, channel 2: .89",
    corrected="The batch and layer statistics hold. The instance variance of sample 3, channel 2, of (4, "
    "1, 2), is 14/9 = 1.56; the instance means are [[3, 8/3], [8/3, 8/3], [8/3, 7/3], [5/3, 7/3]].",
)
def statistics(draw, *, moments=moments_over, instance=0.89):
    x = torch.tensor(GIVEN, dtype=torch.float64)
    for kind in ("batch", "layer"):
        centre, variance = (m.flatten() for m in moments(x, AXES[kind]))
        yield same(f"{kind} means", centre, PRINTED[f"{kind} mean"], tolerance=ROUNDED)
        yield same(f"{kind} variances", variance, PRINTED[f"{kind} variance"], tolerance=ROUNDED)
    means, variances = (m[..., 0] for m in moments(x, AXES["instance"]))
    yield same(
        "instance variance of sample 3, channel 2",
        variances[2, 1],
        instance,
        tolerance=ROUNDED,
        role="detail",
    )
    yield same("the same, 14/9", variances[2, 1], 14 / 9, role="corrected")
    thirds = torch.tensor([[9, 8], [8, 8], [8, 7], [5, 7]], dtype=torch.float64) / 3
    yield same("instance means", means, thirds, role="corrected")
    for _ in range(3):
        other = draw.normal(draw.integer(2, 6), draw.integer(1, 5), draw.integer(2, 7))
        for kind, axes in AXES.items():
            for name, a, b in zip(
                ("mean", "variance"), moments(other, axes), loops(other, kind), strict=True
            ):
                yield same(f"random tensors: {kind} {name} against its definition", a.flatten(), b)


@claim(
    "A3.2",
    A,
    "Batch normalisation suffers on text of varying length.",
    stated="padding enters the statistics of the batch",
)
def norms_on_text(draw, *, batch_norm=BatchNorm, layer_norm=LayerNorm):
    width, words = 6, 4
    norms = {
        "batch": batch_norm(width, affine=False).double(),
        "layer": layer_norm(width, affine=False).double(),
    }
    sentence = 1 + draw.normal(words, width)

    def among(mates: list[int], norm: str) -> Tensor:
        """The sentence as it comes out of a batch with mates of these lengths, padded with zeros."""
        longest = max([words, *mates])
        batch = torch.zeros(1 + len(mates), longest, width, dtype=torch.float64)
        batch[0, :words] = sentence
        for row, length in enumerate(mates, start=1):
            batch[row, :length] = 1 + draw.normal(length, width)
        # Batch norm takes (N, channels, length), layer norm (N, length, features).
        out = norms["batch"](batch.mT).mT if norm == "batch" else norms["layer"](batch)
        return out[0, :words]

    for norm, judge in (("batch", at_least), ("layer", at_most)):
        gap = float((among([4, 4], norm) - among([40, 40], norm)).abs().max())
        yield judge(
            f"{norm} norm: change of a sentence when its mates are longer",
            gap,
            0.1 if norm == "batch" else 1e-12,
        )
    shares = torch.tensor([0.0, 0.2, 0.4, 0.6, 0.8])
    true, off = float((1 + draw.normal(10_000, 1)).mean()), []
    for share in shares:
        rows = 1 + draw.normal(50, 20, width)
        rows[:, : int(20 * share)] = 0
        off.append(abs(float(moments_over(rows, (0, 1))[0].mean()) - true))
    yield at_least("error of the batch mean with 60 % padding, of a mean of 1", off[3], 0.5)
    yield curve(
        "padding in the statistics",
        "error of the mean",
        shares,
        off,
        across="share of padding",
        up="error of the mean",
    )


def ridge(X: Tensor, y: Tensor, w: Tensor, p: float) -> Tensor:
    """‖y − pXw‖² + p(1−p)‖Γw‖², Γ² the diagonal of XᵀX."""
    return (y - p * X @ w).square().sum() + p * (1 - p) * (X.square().sum(0) * w.square()).sum()


@claim(
    "A3.3",
    A,
    "In expectation, least squares with dropout on the inputs is ridge regression.",
    stated="E_R‖y − (X⊙R)w‖² = ‖y − pXw‖² + p(1−p)‖Γw‖²; on the way, E[(X⊙R)ᵀ(X⊙R)] is diagonal",
    corrected="The identity holds. The expected Gram matrix is p²XᵀX + p(1−p) diag(XᵀX), not diagonal.",
)
def dropout_is_ridge(draw, *, closed=ridge, diagonal=True):
    for _ in range(2):
        n, d, p = draw.integer(1, 4), draw.integer(1, 4), float(draw.uniform(1, low=0.2, high=0.9))
        X, y, w = draw.normal(n, d), draw.normal(n), draw.normal(d)
        masks = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n * d)), dtype=X.dtype).view(-1, n, d)
        chance = (p**masks * (1 - p) ** (1 - masks)).flatten(1).prod(1)
        losses = (y - (X * masks) @ w).square().sum(1)
        yield same(
            "mean over every mask against the closed form", (chance * losses).sum(), closed(X, y, w, p)
        )
    n, d, p = 8, 5, 0.7
    X, y, w = draw.normal(n, d), draw.normal(n), draw.normal(d)
    masks = (draw.uniform(20_000, n, d) < p).double()
    samples = (y - (X * masks) @ w).square().sum(1) / closed(X, y, w, p)
    yield mean("Monte Carlo over the closed form", samples, equals=1.0, within=0.05)
    n, d = 2, 3
    X = draw.normal(n, d)
    every = torch.tensor(list(itertools.product([0.0, 1.0], repeat=n * d)), dtype=X.dtype).view(-1, n, d)
    chance = (p**every * (1 - p) ** (1 - every)).flatten(1).prod(1)
    masked = X * every
    gram = (chance[:, None, None] * (masked.mT @ masked)).sum(0)
    full = X.T @ X
    stated = full.diag().diag() * p if diagonal else p * p * full + p * (1 - p) * full.diag().diag()
    yield same("expected Gram matrix, as printed", gram, stated, role="detail")
    yield same(
        "expected Gram matrix: p²XᵀX + p(1−p) diag(XᵀX)",
        gram,
        p * p * full + p * (1 - p) * full.diag().diag(),
        role="corrected",
    )
    if draw.first:
        yield from _path(draw)


def _path(draw):
    """The weights that minimise the expected loss, against p."""
    X = draw.normal(30, 5)
    y = X @ torch.tensor([3.0, -2.0, 1.0, 0.0, 0.5], dtype=X.dtype) + 0.3 * draw.normal(30)
    shares = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    gram = X.T @ X
    solved = [
        torch.linalg.solve(p * p * gram + p * (1 - p) * gram.diag().diag(), p * X.T @ y) * p for p in shares
    ]
    for i in range(5):
        yield curve(
            "the path of dropout, as of ridge",
            f"p·w{i + 1}",
            shares,
            [float(s[i]) for s in solved],
            across="p, the share kept",
            up="weight times p",
        )


def descend(X: Tensor, y: Tensor, start: Tensor, steps: int = 4000) -> Tensor:
    """Gradient descent on ‖Xw − y‖²/2."""
    w, rate = start.clone(), 1.0 / torch.linalg.matrix_norm(X, 2) ** 2
    for _ in range(steps):
        w -= rate * X.T @ (X @ w - y)
    return w


@claim(
    "A3.4",
    A,
    "Gradient descent from zero on under-determined least squares finds the solution of least norm.",
    stated="(left as an exercise)",
    corrected="From zero it is Xᵀ(XXᵀ)⁻¹y; from elsewhere, that plus the part of the start that X does not "
    "see.",
)
def least_norm(draw, *, descend=descend):
    for _ in range(2):
        n, d = draw.integer(1, 5), draw.integer(8, 20)
        left, right = draw.rotation(n), draw.rotation(d)[:n]
        X = (
            left @ torch.diag(draw.uniform(n, low=1.0, high=3.0)) @ right
        )  # far from singular, so that it arrives
        y, start = draw.normal(n), draw.normal(d)
        least = X.T @ torch.linalg.solve(X @ X.T, y)
        blind = start - X.T @ torch.linalg.solve(X @ X.T, X @ start)
        yield same("from zero: Xᵀ(XXᵀ)⁻¹y", descend(X, y, torch.zeros_like(start), 400), least)
        elsewhere = descend(X, y, start, 400)
        yield same("from elsewhere: that plus the start's null-space part", elsewhere, least + blind)
        yield note("from elsewhere, distance to the least-norm solution", float((elsewhere - least).norm()))
