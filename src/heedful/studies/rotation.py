"""A convolutional net is not rotation invariant, and what turning the training images does for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch.nn import functional as F

from ..lab import Count, Figure, Rate, study
from ..lab.figures import COLOURS, sheet
from ..models import ConvNet
from ..probes import rotate, rotation_curve
from ..training import Batches, train
from ._images import images as labelled

ANGLES = tuple(range(0, 361, 30))
_PLAIN = {0: 71.3, 30: 29.4, 60: 21.9, 90: 25.7, 120: 16.8, 180: 27.5, 330: 33.0}


@study(
    "rotation",
    "What does a convolutional net make of images that are turned?",
    source="University of Amsterdam, Deep Learning 1, 2024, 1.2",
    cost={"quick": "20 s", "full": "10 min"},
)
@dataclass
class Rotation:
    """Trained on upright images, or on images turned by any angle; tested every 30 degrees."""

    dataset: Literal["digits", "mnist", "cifar10-10k", "cifar10"] = "cifar10-10k"
    training: Literal["upright", "turned"] = "upright"
    epochs: Count = 10
    batch: Count = 64
    rate: Rate = 1e-3

    axes = ("dataset", "training")
    quick = {"epochs": 12, "axes": {"dataset": ["digits"]}}
    full = {"axes": {"dataset": ["cifar10-10k"]}}
    seeds = {"quick": 2, "full": 5}
    metrics = {
        "upright": "accuracy at 0°, %",
        "turned": "mean accuracy over 30°, 60° … 330°, %",
        "worst": "accuracy at the worst angle, %",
    }
    published = {
        ("cifar10", "upright"): {
            "upright": Figure(71.3, within=2.0),
            **{f"{angle}°": Figure(value, within=5.0) for angle, value in _PLAIN.items()},
        },
        ("cifar10", "turned"): {"upright": Figure(54.0, within=3.0), "turned": Figure(54.0, within=3.0)},
    }

    def run(self, seed, lab):
        sets = labelled(self.dataset, str(lab.device), 0.0, 1.0)
        torch.manual_seed(seed)
        model = ConvNet.rotation(sets.x.shape[1], sets.classes, sets.x.shape[-1])
        model = model.to(lab.device, memory_format=torch.channels_last)
        generator = torch.Generator().manual_seed(seed)

        def loss(model, batch):
            x, y = batch
            if self.training == "turned":
                x = rotate(x, 360 * torch.rand(len(x), generator=generator).to(x.device))
            logits = model(x.contiguous(memory_format=torch.channels_last))
            return F.cross_entropy(logits, y), {"accuracy": (logits.argmax(1) == y).float().mean()}

        train(
            model,
            loss,
            Batches(sets.x, sets.y, size=self.batch, seed=seed),
            torch.optim.Adam(model.parameters(), lr=self.rate),
            epochs=self.epochs,
            progress=False,
            store=lab,
        )
        lab.keep(model, use="classes", **sets.notes)
        shares = rotation_curve(model, sets.test, sets.truth, ANGLES)
        curve = {angle: 100 * share for angle, share in shares.items()}
        between = [curve[angle] for angle in ANGLES if angle % 360]
        return {
            "upright": curve[0],
            "turned": sum(between) / len(between),
            "worst": min(curve.values()),
            **{f"{angle}°": value for angle, value in curve.items()},
        }

    @staticmethod
    def verdict(result):
        said = []
        for key, chosen in result.run.variants:
            upright, turned = result.summary(key, "upright"), result.summary(key, "turned")
            if upright and turned:
                drop = upright.mean - turned.mean
                said.append(
                    f"trained {chosen['training']}: {upright.mean:.0f} % upright, {drop:.0f} less turned"
                )
        return "; ".join(said)

    @staticmethod
    def figure(result):
        """Accuracy against the angle, as a compass."""
        figure = sheet(5.2, 4.6)
        axis = figure.subplots(subplot_kw={"projection": "polar"})
        axis.set_theta_zero_location("N")
        for colour, (key, chosen) in zip(COLOURS, result.run.variants, strict=False):
            found = [result.summary(key, f"{angle}°") for angle in ANGLES]
            if None not in found:
                theta, label = np.radians(ANGLES), f"trained {chosen['training']}, {chosen['dataset']}"
                axis.plot(theta, [s.mean for s in found], "o-", color=colour, markersize=4, label=label)
        axis.set_ylim(0, 100)
        axis.set_yticks([25, 50, 75, 100], ["25", "50", "75", "100 %"], fontsize=8)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.05), frameon=False, fontsize=8)
        return figure
