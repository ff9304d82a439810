"""Patches as tokens: what a ViT makes of few images and of many, told or not told where its patches are."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ..lab import Count, Rate, study
from ..lab.figures import COLOURS, picture, quiet, saved, sheet
from ..models import ConvNet, ViT
from ..probes import accuracy, attention_distance, attention_rollout
from ..training import Checkpoint, train
from ._images import batches, images

PATCH = {"digits": 2, "mnist": 4, "cifar10-10k": 4, "cifar10": 4}
SHOWN = 6


@study(
    "vit",
    "What does a ViT need: positions, many images, which activation?",
    source="IFT6135, 2022, assignment 2; NYU Deep Learning, 2023, homework 3; Dosovitskiy et al., ICLR 2021",
    cost={"quick": "12 s", "full": "10 min on a GPU"},
)
@dataclass
class VisionTransformer:
    """One change at a time: sinusoidal or no positions, ReLU for GELU, a CNN of as many parameters.

    ViT and CNN also learn from a part of the images, `share` % of them, drawn by the seed; the number of
    steps stays. Both have one recipe: AdamW, warm-up, a cosine; photographs are also cropped and mirrored.
    """

    net: Literal["vit", "vit, sinusoidal", "vit, no positions", "vit, relu", "cnn"] = "vit"
    share: Literal[100, 30, 10] = 100
    dataset: Literal["digits", "mnist", "cifar10-10k", "cifar10"] = "cifar10-10k"
    layers: Count = 6
    heads: Count = 4
    dim: Count = 128
    epochs: Count = 60
    batch: Count = 128
    rate: Rate = 1e-3
    decay: Rate = 0.05
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # bfloat16 on a GPU

    axes = ("net", "share")
    quick = {
        "dataset": "digits",
        "layers": 2,
        "dim": 32,
        "epochs": 8,
        "batch": 96,
        "rate": 3e-3,
        "axes": {"share": [100, 10]},
    }
    seeds = {"quick": 1, "full": 3}
    metrics = {
        "test": "accuracy on test images, %",
        "train": "accuracy on the images trained on, %",
        "parameters": "thousands",
    }

    @property
    def sensible(self) -> bool:
        """One change at a time."""
        return self.share == 100 or self.net in ("vit", "cnn")

    def run(self, seed, lab):
        sets = images(self.dataset, str(lab.device))
        order = torch.randperm(len(sets.x), generator=torch.Generator().manual_seed(seed))
        some = order[: len(sets.x) * self.share // 100]
        x, y = sets.x[some.to(lab.device)], sets.y[some.to(lab.device)]
        torch.manual_seed(seed)
        model = self.model(sets.notes).to(lab.device)
        if isinstance(model, ViT):
            _log_distances(model, sets.test[:100], lab, "at the start, head")

        def loss(model, batch):
            x, y = batch
            logits = model(x)
            return F.cross_entropy(logits, y), {"accuracy": (logits.argmax(1) == y).float().mean()}

        steps = self.epochs * math.ceil(len(sets.x) / self.batch)
        optimizer = torch.optim.AdamW(model.parameters(), lr=self.rate, weight_decay=self.decay)
        train(
            model,
            loss,
            batches(self.dataset, x, y, size=min(self.batch, len(x)), seed=seed),
            optimizer,
            steps=steps,
            schedule=torch.optim.lr_scheduler.LambdaLR(optimizer, warm_cosine(steps)),
            checkpoint=Checkpoint(lab.folder / "training", seconds=60),
            precision=self.precision,
            capture=lab.device.type == "cuda",
            progress=False,
            store=lab,
        )
        shutil.rmtree(lab.folder / "training")
        lab.keep(model, use="classes", **sets.notes)
        if isinstance(model, ViT):
            _log_distances(model, sets.test[:100], lab, "head")
            seen = sets.test[:SHOWN]
            lab.save("heeded.safetensors", {"images": sets.pixels(seen), "heeded": heeded(model, seen)})
        return {
            "test": 100 * accuracy(model, sets.test, sets.truth),
            "train": 100 * accuracy(model, x, y),
            "parameters": model.parameter_count / 1000,
        }

    def model(self, notes: dict) -> ViT | ConvNet:
        """The net for images as `notes` tells them."""
        size, channels, classes = notes["size"][0], notes["channels"], len(notes["classes"])
        _, _, change = self.net.partition(", ")
        vit = ViT(
            size,
            PATCH[self.dataset],
            channels,
            classes,
            layers=self.layers,
            heads=self.heads,
            dim=self.dim,
            position={"sinusoidal": "sinusoidal", "no positions": "none"}.get(change, "learned"),  # type: ignore[arg-type]
            activation="relu" if change == "relu" else "gelu",
        )
        return vit if self.net != "cnn" else convnet_of(vit.parameter_count, channels, classes)

    @staticmethod
    def verdict(result):
        found = {
            (chosen["net"], chosen["share"]): summary.mean
            for key, chosen in result.run.variants
            if (summary := result.summary(key, "test")) is not None
        }
        said = [
            f"{share} % of the images: ViT {found['vit', share]:.0f} %, CNN {found['cnn', share]:.0f} %"
            for share in (100, 30, 10)
            if ("vit", share) in found and ("cnn", share) in found
        ]
        said += [
            f"{name.removeprefix('vit, ')} {value - found['vit', 100]:+.1f}"
            for (name, share), value in found.items()
            if name.startswith("vit, ") and ("vit", 100) in found
        ]
        return "; ".join(said) or "no pair to compare"

    @staticmethod
    def figure(result):
        """Accuracy against images and by change; how far each head looks; what the answer was read from."""
        figure = sheet(10.5, 6.2)
        grid = figure.add_gridspec(2, 1, height_ratios=(3.4, 2.6))
        many, changes, far = (figure.add_subplot(place) for place in grid[0].subgridspec(1, 3, wspace=0.1))
        variants = result.variants()
        for colour, net in zip(COLOURS, ("vit", "cnn"), strict=False):
            points = sorted(
                (chosen["share"], summary.mean, summary.std or 0.0)
                for key, chosen, _ in variants
                if chosen["net"] == net and (summary := result.summary(key, "test")) is not None
            )
            if points:
                share, mean, spread = zip(*points, strict=True)
                many.plot(share, mean, "o-", color=colour, label=_spelled(net), markersize=4)
                many.errorbar(share, mean, spread, fmt="none", ecolor=colour, capsize=3)
        many.set_xscale("log")
        shares = sorted({chosen["share"] for _, chosen, _ in variants})
        many.set_xticks(shares, [f"{share} %" for share in shares])
        many.minorticks_off()
        many.set_xlabel("of the training images, in as many steps")
        many.set_ylabel("accuracy on test images, %")
        if many.lines:
            many.legend(frameon=False, fontsize=9)
        whole = [(key, chosen["net"]) for key, chosen, _ in variants if chosen["share"] == 100]
        for place, (key, _) in enumerate(whole):
            values = list(result.values(key, "test").values())
            if values:
                changes.plot(values, [place] * len(values), ".", color=COLOURS[0], alpha=0.4)
                changes.plot([sum(values) / len(values)], [place], "o", color=COLOURS[0], markersize=7)
        changes.set_yticks(range(len(whole)), [_spelled(net) for _, net in whole], fontsize=9)
        changes.invert_yaxis()
        changes.set_xlabel("accuracy with all images, %")
        bases = [key for key, chosen, _ in variants if chosen["net"] == "vit"]
        _draw_distances(far, result, bases[:1])
        found = saved(result, bases[0], "heeded.safetensors") if bases else None
        rows = grid[1].subgridspec(2, SHOWN)
        for column in range(SHOWN):
            above, below = (figure.add_subplot(rows[row, column]) for row in (0, 1))
            for place in (above, below):
                place.set_axis_off()
            if found is not None:
                picture(above, found["images"][column], "test images" if column == 0 else "")
                words = "how much of each patch is in the answer" if column == 0 else ""
                heat = found["heeded"][column]
                picture(below, heat, words, cmap="inferno", vmax=float(heat.max()))
        for axis in (many, changes, far):
            quiet(axis)
        return figure


def convnet_of(parameters: int, channels: int, classes: int) -> ConvNet:
    """Convolutions of widths w, 2w and about 4w, halved each, the mean, a linear layer: as many parameters.

    These are 9 (channels · w + 2w² + 2w · last) + 3w + last + (last + 1) · classes: solved for the last.
    """
    w = max(1, math.isqrt(parameters // 90))
    rest = parameters - 9 * (channels * w + 2 * w * w) - 3 * w - classes
    return ConvNet(channels, classes, widths=[w, 2 * w, max(1, round(rest / (18 * w + 1 + classes)))])


def warm_cosine(steps: int):
    """The share of the learning rate at a step: up in a straight line for a tenth, down along a cosine."""
    warm = max(1, steps // 10)

    def share(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))

    return share


@torch.no_grad()
def distances(model: ViT, seen: Tensor) -> Tensor:
    """Mean attention distance in pixels, (layers, heads), between patches; the class token has no place."""
    maps = model.eval().attention_maps(seen)[..., model.extra :, model.extra :]
    rows, columns = model.patches.grid
    down, along = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    places = torch.stack(
        [down.flatten() * model.patches.patch[0], along.flatten() * model.patches.patch[1]], 1
    )
    return attention_distance(maps, places.to(maps.device)).mean(1)


@torch.no_grad()
def heeded(model: ViT, seen: Tensor) -> Tensor:
    """How much of each patch is in the answer by attention rollout, (images, rows, columns)."""
    rolled = attention_rollout(list(model.eval().attention_maps(seen)))
    return rolled[:, 0, model.extra :].unflatten(1, model.patches.grid)


def _log_distances(model: ViT, seen: Tensor, lab, name: str) -> None:
    for layer, heads in enumerate(distances(model, seen).tolist(), 1):
        lab.log(layer, **{f"distance, {name} {head}": value for head, value in enumerate(heads, 1)})


def _spelled(net: str) -> str:
    return net.replace("vit", "ViT").replace("cnn", "CNN").replace("relu", "ReLU")


def _draw_distances(axis, result, keys: list[str]) -> None:
    """A dot a head, layer by layer, each seed; grey before training."""
    for key in keys:
        for trial in result.trials:
            if trial.key != key or trial.status != "done":
                continue
            for name, curve in result.store.curves(trial).items():
                if name.startswith("distance, "):
                    before = "start" in name
                    layers, values = zip(*curve, strict=True)
                    shift = -0.12 if before else 0.12
                    axis.plot(
                        [layer + shift for layer in layers],
                        values,
                        "o",
                        color="#999999" if before else COLOURS[0],
                        alpha=0.5,
                        markersize=4,
                        markeredgewidth=0,
                    )
    axis.plot([], [], "o", color="#999999", label="before training", markersize=4)
    axis.plot([], [], "o", color=COLOURS[0], label="after", markersize=4)
    axis.legend(frameon=False, fontsize=8)
    axis.set_ylim(0, 1.12 * axis.dataLim.y1 if axis.dataLim.y1 > 0 else 1)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel("layer of the ViT")
    axis.set_ylabel("how far each head looks, pixels")
