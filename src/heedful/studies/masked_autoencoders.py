"""Hide three quarters of an image and fill it in: what a ViT learns by that, before it has seen a label."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..lab import Count, Figure, Rate, Share, study
from ..lab.figures import COLOURS, mean_curve, picture, quiet, saved, sheet
from ..models import MaskedAutoencoder
from ..nn import patchify, unpatchify
from ..probes import accuracy, linear_probe
from ..training import Batches, Checkpoint, train
from ._images import batches, images
from .vit import PATCH, warm_cosine

SHOWN = 6


@study(
    "masked-autoencoders",
    "Does a ViT that fills in hidden patches learn what labels need?",
    source="University of California, EECS 182, 2023, homework 7, 1; He et al., CVPR 2022",
    cost={"quick": "12 s", "full": "15 min on a GPU"},
)
@dataclass
class MaskedAutoencoders:
    """The ViT of the study autoencoders: one that filled in hidden patches first, and one from scratch.

    Both are asked twice: a straight line reads the classes off what they make of an image before they know
    of labels (`probe`), then they are trained on `labels` of them (`tuned`). `hidden` is the error of what
    was filled in, over that of filling in the grey halfway, or with `normalize` each patch's own mean.
    """

    start: Literal["masked", "scratch"] = "masked"
    dataset: Literal["digits", "mnist", "cifar10-10k", "cifar10"] = "cifar10-10k"
    masked: Share = 0.75
    normalize: bool = True  # each patch less its mean and over its deviation; not where many are blank
    layers: Count = 6
    heads: Count = 3
    dim: Count = 192
    decoder_layers: Count = 2
    epochs: Count = (
        200  # of filling in; the course's bars are for whole CIFAR-10, five times as many steps each
    )
    rate: Rate = 1e-3
    labels: Count | None = None  # all there are
    tune_epochs: Count = 10
    tune_rate: Rate = 5e-4
    batch: Count = 128

    axes = ("dataset", "start")
    quick = {
        "layers": 2,
        "heads": 4,
        "dim": 48,
        "decoder_layers": 1,
        "epochs": 45,
        "rate": 3e-3,
        "normalize": False,
        "labels": 100,
        "tune_epochs": 40,
        "tune_rate": 2e-3,
        "batch": 96,
        "axes": {"dataset": ["digits"]},
    }
    full = {"axes": {"dataset": ["cifar10-10k"]}}
    seeds = {"quick": 1, "full": 3}
    metrics = {
        "probe": "accuracy of a linear probe before labels are seen, %",
        "tuned": "accuracy after training on labels, %",
        "hidden": "squared error of hidden patches, over that of filling in nothing",
    }
    also = {
        "the course's bar": {
            ("cifar10", "masked"): {"probe": Figure(30.0), "tuned": Figure(70.0)},
            ("cifar10", "scratch"): {"tuned": Figure(65.0)},
        }
    }

    def run(self, seed, lab):
        sets = images(self.dataset, str(lab.device))
        torch.manual_seed(seed)
        model = self.model(sets.notes).to(lab.device)
        order = torch.randperm(len(sets.x), generator=torch.Generator().manual_seed(seed))
        some = order[: self.labels].to(lab.device)

        def fit(model: nn.Module, loss, feed: Batches, epochs: int, rate: float, prefix: str, **options):
            steps = epochs * len(feed)
            optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05, betas=(0.9, 0.95))
            train(
                model,
                loss,
                feed,
                optimizer,
                epochs=epochs,
                schedule=torch.optim.lr_scheduler.LambdaLR(optimizer, warm_cosine(steps)),
                checkpoint=Checkpoint(lab.folder / prefix, seconds=60),
                progress=False,
                store=_Named(lab, f"{prefix}, "),
                **options,
            )

        if self.start == "masked":
            feed = batches(self.dataset, sets.x, size=self.batch, seed=seed)
            fit(model, lambda model, x: model.loss(x), feed, self.epochs, self.rate, "filling")
        model.eval()
        x, y = sets.x[some], sets.y[some]
        probe = linear_probe(_features(model, x), y, _features(model, sets.test), sets.truth)
        found = {"probe": 100 * probe, "hidden": _hidden(model, sets.test)}
        seen = sets.test[:SHOWN]
        lab.save("filled.safetensors", {name: sets.pixels(x) for name, x in filled(model, seen).items()})

        classifier = model.classifier(sets.classes)

        def loss(model, batch):
            x, y = batch
            return F.cross_entropy(model(x), y)

        fit(
            classifier,
            loss,
            batches(self.dataset, x, y, size=min(self.batch, len(some)), seed=seed),
            self.tune_epochs,
            self.tune_rate,
            "labels",
            evaluate=lambda model: {"accuracy": 100 * accuracy(model, sets.test, sets.truth)},
        )
        lab.keep(classifier, use="classes", **sets.notes)
        for name in ("filling", "labels"):
            shutil.rmtree(lab.folder / name, ignore_errors=True)
        return {**found, "tuned": 100 * accuracy(classifier, sets.test, sets.truth)}

    def model(self, notes: dict) -> MaskedAutoencoder:
        return MaskedAutoencoder(
            notes["size"][0],
            PATCH[self.dataset],
            notes["channels"],
            layers=self.layers,
            heads=self.heads,
            dim=self.dim,
            decoder_layers=self.decoder_layers,
            decoder_heads=self.heads,
            decoder_dim=self.dim // 2,
            masked=self.masked,
            normalize=self.normalize,
        )

    @staticmethod
    def verdict(result):
        said = []
        for key, chosen in result.run.variants:
            probe, tuned = result.summary(key, "probe"), result.summary(key, "tuned")
            if probe and tuned:
                said.append(f"{chosen['start']}: probe {probe.mean:.0f} %, tuned {tuned.mean:.0f} %")
        return "; ".join(said)

    @staticmethod
    def figure(result):
        """Test images, what was shown of them, what was filled in; the curves of tuning, and the probes."""
        figure = sheet(9.5, 6.4)
        grid = figure.add_gridspec(2, 1, height_ratios=(3.2, 2.6))
        rows = grid[0].subgridspec(3, SHOWN)
        variants = result.variants()
        masked = [key for key, chosen, _ in variants if chosen["start"] == "masked"]
        found = saved(result, masked[0], "filled.safetensors") if masked else None
        for row, name in enumerate(("images", "shown", "filled")):
            words = {"images": "test images", "shown": "a quarter of them", "filled": "the rest filled in"}[
                name
            ]
            for column in range(SHOWN):
                place = figure.add_subplot(rows[row, column])
                place.set_axis_off()
                if found is not None:
                    picture(place, found[name][column], words if column == 0 else "")
        left, right = (figure.add_subplot(place) for place in grid[1].subgridspec(1, 2, wspace=0.08))
        for place, (key, _, label) in enumerate(variants):
            colour = COLOURS[place % len(COLOURS)]
            left.plot(
                *mean_curve(result, key, "labels, epoch accuracy"),
                "o-",
                color=colour,
                label=label,
                markersize=3,
            )
            for across, metric in enumerate(("probe", "tuned")):
                values = list(result.values(key, metric).values())
                if values:
                    spot = across + 0.2 * (place - (len(variants) - 1) / 2)
                    right.bar([spot], [sum(values) / len(values)], 0.18, color=colour, alpha=0.75)
                    right.plot([spot] * len(values), values, ".", color="black", markersize=4)
        left.set_xlabel("epoch of training on labels")
        left.set_ylabel("accuracy on test images, %")
        left.legend(frameon=False, fontsize=9)
        right.set_xticks([0, 1], ["linear probe,\nbefore labels", "after training\non labels"], fontsize=9)
        right.set_ylabel("accuracy, %; a dot a seed")
        for axis in (left, right):
            quiet(axis, "y")
        return figure


class _Named:
    """A lab's log whose names begin with what they are of; the numbers of an epoch by epoch."""

    def __init__(self, lab, prefix: str):
        self.lab, self.prefix = lab, prefix

    def log(self, step: int, *, epoch: int | None = None, **numbers) -> None:
        words = self.prefix if epoch is None else f"{self.prefix}epoch "
        self.lab.log(step if epoch is None else epoch, **{f"{words}{n}": v for n, v in numbers.items()})


@torch.no_grad()
def filled(model: MaskedAutoencoder, seen: Tensor) -> dict[str, Tensor]:
    """Images, what the model is shown of them, and what it makes of the rest."""
    picture, mask = model.reconstruct(seen)
    patch, size = model.encoder.patches.patch, model.encoder.patches.image_size
    patches = patchify(seen, patch)
    shown = unpatchify(torch.where(mask[..., None], torch.zeros_like(patches), patches), size, patch)
    return {"images": seen, "shown": shown, "filled": picture}


@torch.no_grad()
def _hidden(model: MaskedAutoencoder, test: Tensor) -> float:
    """The loss over that of a copy that predicts 0 everywhere."""
    blank = copy.deepcopy(model)
    nn.init.zeros_(blank.predict.weight)
    nn.init.zeros_(blank.predict.bias)
    parts = test.split(500)
    mine, nothing = (sum(float(net.loss(x)) * len(x) for x in parts) for net in (model, blank))
    return mine / nothing


@torch.no_grad()
def _features(model: MaskedAutoencoder, x: Tensor) -> Tensor:
    return torch.cat([model.features(part) for part in x.split(500)])
