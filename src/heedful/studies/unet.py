"""Down to what is there, up again to where it is: what the skips of a U-Net bring to a segmentation."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import data
from ..lab import Count, Figure, Rate, study
from ..lab.figures import COLOURS, mean_curve, picture, quiet, saved, sheet
from ..models import UNet
from ..probes import dice, iou, pixel_error, rand_error, segments
from ..training import Checkpoint, train
from ..training.batches import Order

THRESHOLDS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
MEMBRANE, CELL = 0, 1
PAPER = (
    "The U-Net paper's warping error .000353, Rand error .0382 and pixel error .0611 are of the challenge's\n"
    "hidden slices, measured by its server, with elastic deformations and the mean of seven turned copies.\n"
    "Ours are of six slices held out of the thirty public ones: shown beside, but not to be compared."
)


@study(
    "unet",
    "What do the skips of a U-Net bring to a segmentation?",
    source="University of Toronto CSC413, U-Net; Ronneberger, Fischer & Brox, MICCAI 2015",
    cost={"quick": "12 s", "full": "15 min on a GPU"},
)
@dataclass
class UNetSkips:
    """Cell membranes in electron micrographs: 24 slices to learn from, 6 to test, of either half some.

    With and without skips the nets have equally many weights, to a hundredth. Padding "valid" is the original
    form: convolutions do not pad, so a square is shown with mirrored surroundings.
    """

    skips: Literal["with", "without"] = "with"
    padding: Literal["same", "valid"] = "same"
    dataset: Literal["isbi2012", "membranes"] = "isbi2012"
    images: Count = 30  # to generate, of 96 × 96, for "membranes"
    width: Count = 32  # of the highest level, doubled at each: 32, 64 … 512
    levels: Count = 5
    steps: Count = 2000
    batch: Count = 4
    smallest: Count = 128  # sides of the random squares
    largest: Count = 256
    rate: Rate = 1e-3

    axes = ("dataset", "padding", "skips")
    quick = {
        "width": 8,
        "levels": 3,
        "steps": 120,
        "batch": 3,
        "rate": 3e-3,
        "smallest": 48,
        "largest": 64,
        "axes": {"dataset": ["membranes"], "padding": ["same"]},
    }
    full = {"axes": {"dataset": ["isbi2012"]}}
    seeds = {"quick": 2, "full": 3}
    metrics = {
        "pixel": "pixels put into the wrong class, %",
        "dice": "Dice of the membranes, %",
        "iou": "intersection over union of the membranes, %",
        "rand": "adapted Rand error of the cells at the best threshold, %",
    }
    also = {
        "the paper on other, hidden slices": {
            ("isbi2012", "valid", "with"): {"pixel": Figure(6.11), "rand": Figure(3.82)},
            ("isbi2012", "same", "with"): {"pixel": Figure(6.11), "rand": Figure(3.82)},
        }
    }

    def run(self, seed, lab):
        sets = _sections(self.dataset, self.images, str(lab.device))
        torch.manual_seed(seed)
        model = self.model().to(lab.device, memory_format=torch.channels_last)
        images, masks = sets.images[sets.val], sets.masks[sets.val]

        def evaluate(model):
            logits = predicted(model, images)
            wrong = (logits.argmax(1) != masks).float().mean()
            return {"val_loss": F.cross_entropy(logits, masks), "val_pixel": 100 * wrong}

        def keep(training):
            if training.row is not None:
                lab.keep(model, use="segments", classes=list(sets.classes), dataset=self.dataset)
                lab.progress(training.step / self.steps)

        def loss(model, batch):
            x, y = batch
            return F.cross_entropy(model(x.contiguous(memory_format=torch.channels_last)), y)

        train(
            model,
            loss,
            Squares(
                sets.images[sets.train],
                sets.masks[sets.train],
                model,
                sides=(self.smallest, self.largest),
                size=self.batch,
                seed=seed,
            ),
            torch.optim.Adam(model.parameters(), lr=self.rate),
            steps=self.steps,
            evaluate=evaluate,
            every=max(1, self.steps // 10),
            callbacks=[keep],
            checkpoint=Checkpoint(lab.folder / "training", seconds=60),
            progress=False,
            store=lab,
        )
        shutil.rmtree(lab.folder / "training")
        cells = predicted(model, images).softmax(1)[:, CELL].cpu()
        shown = {"image": images[0, 0], "truth": masks[0], "cell": cells[0]}
        lab.save("section.safetensors", {name: (255 * value).byte() for name, value in shown.items()})
        return scores(cells, masks.cpu())

    def model(self) -> UNet:
        widths = [self.width << level for level in range(self.levels)]
        return UNet(1, 2, widths=widths, skips=self.skips == "with", padding=self.padding)

    @staticmethod
    def remarks(result):
        return [PAPER] if any(chosen["dataset"] == "isbi2012" for _, chosen in result.run.variants) else []

    @staticmethod
    def verdict(result):
        said = []
        for padding in ("same", "valid"):
            found = {
                chosen["skips"]: summary.mean
                for key, chosen in result.run.variants
                if chosen["padding"] == padding and (summary := result.summary(key, "pixel")) is not None
            }
            if len(found) == 2:
                said.append(f"{padding}: {found['with']:.1f} % with skips, {found['without']:.1f} % without")
        return "pixel error, " + "; ".join(said) if said else "no pair to compare"

    @staticmethod
    def figure(result):
        """A section, its truth and what each net says of it; how the error fell; all scores."""
        variants = result.variants()
        columns = max(4, 2 + len(variants))
        figure = sheet(2.5 * columns, 5.6)
        grid = figure.add_gridspec(2, 1, height_ratios=(2.4, 2.6))
        top = [figure.add_subplot(place) for place in grid[0].subgridspec(1, columns)]
        for place in top:
            place.set_axis_off()
        for place, (key, chosen, _) in enumerate(variants):
            found = saved(result, key, "section.safetensors")
            if found is None:
                continue
            if not top[0].images:
                picture(top[0], found["image"], "a section not trained on")
                picture(top[1], found["truth"], "truth: membranes black")
            picture(top[2 + place], found["cell"], f"{chosen['skips']} skips{_form(chosen, variants)}")
        left, right = (figure.add_subplot(place) for place in grid[1].subgridspec(1, 2, wspace=0.08))
        for place, (key, chosen, _) in enumerate(variants):
            colour, name = COLOURS[place % len(COLOURS)], f"{chosen['skips']} skips{_form(chosen, variants)}"
            left.plot(*mean_curve(result, key, "val_pixel"), "o-", color=colour, label=name, markersize=3)
            for across, metric in enumerate(result.study.metrics):
                values = list(result.values(key, metric).values())
                if values:
                    spot = across + 0.16 * (place - (len(variants) - 1) / 2)
                    mean = sum(values) / len(values)
                    right.bar([spot], [mean], 0.15, color=colour, alpha=0.75)
                    right.plot([spot] * len(values), values, ".", color="black", markersize=4)
        left.set_xlabel("step")
        left.set_ylabel("pixel error, sections not seen, %", fontsize=9)
        left.set_ylim(bottom=0)
        left.legend(frameon=False, fontsize=9)
        names = {"pixel": "pixel error", "dice": "Dice ↑", "iou": "IoU ↑", "rand": "Rand error"}
        right.set_xticks(range(len(names)), list(names.values()), fontsize=9)
        right.set_ylabel("%, a dot a seed", fontsize=9)
        for axis in (left, right):
            quiet(axis, "y")
        return figure


class Squares(Order):
    """Squares from anywhere, mirrored and turned by quarters, which seed, epoch and place decide.

    The images of a "valid" net are cut with `margin` more on each side, mirrored beyond their edges.
    """

    def __init__(
        self, images: Tensor, masks: Tensor, net: UNet, *, sides: tuple[int, int], size: int, seed: int
    ):
        super().__init__(len(images), size, seed=seed)
        self.masks, self.net = masks, net
        self.images = F.pad(images, [net.margin] * 4, mode="reflect") if net.margin else images
        self.smallest, self.largest = (min(side, *masks.shape[-2:]) for side in sides)

    def take(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        draw = random.Random(f"{self.seed} {self.epoch} {self.position}")
        # The side is drawn once a batch; the net makes some sides only, of those the next smaller one.
        side = self.net.fitting(max(1, draw.randint(self.smallest, self.largest) - self.net.scale + 1))
        seen = side + 2 * self.net.margin
        taken = []
        for row in torch.arange(self.rows)[rows].tolist():
            top, left = (draw.randint(0, extent - side) for extent in self.masks.shape[-2:])
            pair = (
                self.images[row, :, top : top + seen, left : left + seen],
                self.masks[row, top : top + side, left : left + side],
            )
            turns, mirrored = draw.randrange(4), draw.random() < 0.5
            taken.append([(p.flip(-1) if mirrored else p).rot90(turns, (-2, -1)) for p in pair])
        x, y = zip(*taken, strict=True)
        return torch.stack(x), torch.stack(y)


def predicted(model: UNet, images: Tensor) -> Tensor:
    """Logits of every pixel, one image after another: whole ones take memory."""
    return torch.cat([model.predict(image[None]) for image in images])


def scores(cells: Tensor, masks: Tensor) -> dict[str, float]:
    """All four, from the probability of a cell; images count as one for pixels and overlap, each for Rand."""
    classes = (cells > 0.5).long()
    truth = [segments(mask == CELL) for mask in masks]
    rand = {
        threshold: sum(rand_error(segments(p > threshold), t) for p, t in zip(cells, truth, strict=True))
        / len(masks)
        for threshold in THRESHOLDS
    }
    return {
        "pixel": 100 * pixel_error(classes, masks),
        "dice": 100 * dice(classes == MEMBRANE, masks == MEMBRANE),
        "iou": 100 * iou(classes == MEMBRANE, masks == MEMBRANE),
        "rand": 100 * min(rand.values()),
        "rand at 0.5": 100 * rand[0.5],
    }


def _form(chosen: dict, variants: list) -> str:
    """The padding, where there is more than one."""
    several = len({other["padding"] for _, other, _ in variants}) > 1
    return f", {chosen['padding']}" if several else ""


@cache
def _sections(name: str, images: int, device: str):
    found = data.load(name) if name == "isbi2012" else data.membranes(count=images, size=96, cell=20.0)
    return found.scaled().to(device)
