"""A batch in pieces: with LayerNorm the gradients add up to the large batch's, with BatchNorm they cannot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from ..lab import Count, study
from ..lab.figures import COLOURS, canvas, upwards


@study(
    "accumulation",
    "Is gradient accumulation the same as a large batch?",
    source="University of Toronto CSC413, gradient accumulation with BatchNorm and LayerNorm",
    cost={"quick": "2 s", "full": "10 s"},
)
@dataclass
class Accumulation:
    """32 samples at once, or as (pieces, samples each) = (2, 16) … (32, 1), their gradients averaged.

    BatchNorm sees only its piece: other means, other variances, another function. Its gradient differs in
    size and in direction, most for pieces of one or two.
    """

    norm: Literal["batch", "layer", "none"] = "batch"
    pieces: Literal[1, 2, 4, 8, 16, 32] = 1
    features: Count = 20
    hidden: Count = 64
    depth: Count = 3

    axes = ("norm", "pieces")
    quick = {"hidden": 32}
    seeds = {"quick": 3, "full": 20}
    metrics = {
        "angle": "between the gradients of pieces and whole, degrees",
        "size": "norm of the pieces' gradient over the whole's",
        "logits": "largest difference of a logit, over the logits' spread",
    }

    def run(self, seed, lab):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(32, self.features, generator=generator, dtype=torch.float64)
        y = torch.randint(5, (32,), generator=generator)
        torch.manual_seed(seed)
        layers: list[nn.Module] = []
        for width in [self.features] + [self.hidden] * (self.depth - 1):
            kinds = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "none": lambda width: nn.Identity()}
            layers += [nn.Linear(width, self.hidden), kinds[self.norm](self.hidden), nn.ReLU()]
        model = nn.Sequential(*layers, nn.Linear(self.hidden, 5)).double()

        def gradient(pieces):
            """The mean of the pieces' gradients, and all logits."""
            model.zero_grad()
            logits = []
            for part, labels in zip(x.chunk(pieces), y.chunk(pieces), strict=True):
                if self.norm == "batch" and len(part) == 1:
                    # Torch refuses: the variance of one sample is zero, so every feature becomes its shift.
                    out = _of_one(model, part)
                else:
                    out = model(part)
                (F.cross_entropy(out, labels) / pieces).backward()
                logits.append(out.detach())
            return torch.cat([p.grad.flatten() for p in model.parameters()]), torch.cat(logits)

        whole, whole_logits = gradient(1)
        parts, logits = gradient(self.pieces)
        cosine = float(whole @ parts / (whole.norm() * parts.norm()))
        residual = float((whole - parts).norm() / whole.norm())
        angle = math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
        if residual < 1e-12:
            angle = 0.0  # acos near 1 turns rounding of 1e-16 into 1e-6 degrees
        spread = float(whole_logits.std())
        return {
            "angle": angle,
            "size": float(parts.norm() / whole.norm()),
            "logits": float((logits - whole_logits).abs().max()) / spread,
            "residual": residual,
        }

    @staticmethod
    def verdict(result):
        worst: dict[str, list[tuple[float, float]]] = {}
        for key, chosen in result.run.variants:
            residual, angle = result.summary(key, "residual"), result.summary(key, "angle")
            if residual is not None and angle is not None:
                worst.setdefault(chosen["norm"], []).append((residual.mean, angle.mean))
        said = []
        for name, found in worst.items():
            residual, angle = (max(column) for column in zip(*found, strict=True))
            same = "the same gradient" if residual < 1e-10 else f"a gradient up to {angle:.0f}° off"
            said.append(f"{name} norm: {same}".replace("none norm", "no norm"))
        return "; ".join(said)

    @staticmethod
    def figure(result):
        figure, axes = canvas(9, 3.4, ncols=2)
        for axis, metric in zip(axes, ("angle", "size"), strict=True):
            for colour, norm in zip(COLOURS, ("batch", "layer", "none"), strict=False):
                shown = [
                    (chosen["pieces"], summary.mean)
                    for key, chosen in result.run.variants
                    if chosen["norm"] == norm and (summary := result.summary(key, metric)) is not None
                ]
                if shown:
                    axis.plot(*zip(*shown, strict=True), "o-", color=colour, label=norm, markersize=4)
            axis.set_xscale("log", base=2)
            axis.set_xlabel("pieces of a batch of 32")
            upwards(axis, result.study.metrics[metric])
        axes[0].legend(title="norm", frameon=False)
        return figure


def _of_one(model: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """The model on one sample, batch norm taken at its word: x − mean(x) is zero."""
    for layer in model:
        if isinstance(layer, nn.BatchNorm1d):
            x = (x - x.mean(0)) / torch.sqrt(x.var(0, correction=0) + layer.eps) * layer.weight + layer.bias
        else:
            x = layer(x)
    return x
