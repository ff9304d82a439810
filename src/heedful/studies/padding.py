"""Zero padding leaks position: classes that differ in height, and a net that should not see height."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch.nn import functional as F

from .. import data
from ..lab import Count, Figure, Trained, study
from ..lab.figures import COLOURS, canvas
from ..models import ConvNet
from ..nn import Occupied
from ..probes import accuracy, shift_map
from ..training import Batches, Experiment, Patience


def _published(val, val_std, test, test_std):
    both = {"runs": 10, "source": "UvA DL1 2024, 1.1"}
    return {
        "val": Figure(val, std=val_std, within=1.5, **both),
        "test": Figure(test, std=test_std, within=2.5, **both),
    }


@study(
    "padding",
    "Does a convolution know where it is looking?",
    source="Kayhan & van Gemert, CVPR 2020; University of Amsterdam, Deep Learning 1, 2024, 1.1",
    cost={"quick": "20 s", "full": "1 h"},
)
@dataclass
class Padding(Trained):
    """Red left of green, or green left of red? In training the first stand high and the second low; the test
    swaps that. A net that answers by height is wrong on every test image, one that cannot see it is right.

    On the CPU convolutions look only where something is (`heedful.nn.Occupied`): the same numbers, to
    rounding, in a fraction of the time.
    """

    net: Literal["Net1", "Net2"] = "Net1"
    padding: Literal["valid", "replicate", "reflect", "circular", "same", "full"] = "valid"
    epochs: Count = 50
    patience: Count = 9
    batch: Count = 200
    train: Count = 2000
    clean: bool = False  # draws a real validation set, instead of the first training images once more
    layer: Literal["convolution", "attention"] = "convolution"  # relative attention over the same places
    shifts: Count = 1  # pixels between the heights the images are moved to at the end

    axes = ("net", "padding")
    quick = {
        "epochs": 10, "train": 500, "batch": 25, "shifts": 4,
        "axes": {"net": ["Net1"], "padding": ["valid", "full"]},
    }  # fmt: skip
    seeds = {"quick": 2, "full": 10}
    ddof = 0
    metrics = {"val": "accuracy on images like the training's, %", "test": "accuracy with heights swapped, %"}
    published = {
        ("Net1", "valid"): _published(100, 0, 0.09, 0.11),
        ("Net1", "replicate"): _published(98.31, 0.48, 93.80, 2.16),
        ("Net1", "reflect"): _published(100, 0, 0, 0),
        ("Net1", "circular"): _published(99.64, 0.29, 82.61, 2.75),
        ("Net1", "same"): _published(98.89, 0.21, 6.37, 0.23),
        ("Net1", "full"): _published(88.07, 1.20, 88.85, 0.62),
        **{
            ("Net2", padding): _published(100, 0, 0, 0)
            for padding in ("valid", "replicate", "reflect", "circular", "same", "full")
        },
    }

    also = {
        "CVPR 2020": {
            ("Net1", padding): {
                "val": Figure(val, std=val_std, runs=10, source="Kayhan & van Gemert"),
                "test": Figure(test, std=test_std, runs=10, source="Kayhan & van Gemert"),
            }
            for padding, val, val_std, test, test_std in (
                ("valid", 100, None, 0.2, 0.1),
                ("same", 99.8, 0.1, 8.4, 0.7),
                ("circular", 73.7, 1.0, 73.7, 1.0),
                ("full", 89.7, 0.5, 89.7, 0.5),
            )
        }
    }

    def experiment(self, device, seed):
        (x, y), (val, val_labels), (test, test_labels) = _images(self.train, self.clean, str(device))
        batches, seen = Batches(x, y, size=self.batch, shuffle=False), val
        if device.type == "cpu" and self.layer == "convolution":
            batches, seen = _occupied(self.train, self.clean, self.padding, self.batch)

        def model():
            made = {"Net1": ConvNet.net1, "Net2": ConvNet.net2}[self.net](self.padding, layer=self.layer)
            return made.to(device, memory_format=torch.channels_last)

        def loss(model, batch):
            inputs, labels = batch
            return F.cross_entropy(model(inputs), labels)

        def evaluate(model):
            logits = model(seen)
            right = (logits.argmax(-1) == val_labels).float()
            return {"val_loss": F.cross_entropy(logits, val_labels), "val": 100 * right.mean()}

        def after(model):
            found = {"test": 100 * accuracy(model, test, test_labels)}
            for (down, _), share in shift_map(
                model, val[:500], val_labels[:500], down=range(-16, 17, self.shifts)
            ).items():
                found[f"moved {down:+d}"] = 100 * share
            return found

        return Experiment(
            model=model,
            loss=loss,
            batches=batches,
            optimizer=lambda model: torch.optim.Adadelta(
                model.parameters(), lr=1.0, rho=0.9, eps=1e-6, weight_decay=5e-5
            ),
            epochs=self.epochs,
            evaluate=evaluate,
            stop=Patience(self.patience, val_loss="min"),
            test=after,
        )

    def found(self, outcome):
        """The validation of the last epoch beside the test of the best one, as the course has it."""
        history = outcome.history
        return {"val": history.last["val"], "epochs": len(history.epochs), **outcome.test}

    @staticmethod
    def verdict(result):
        found = {label: result.summary(key, "test") for key, _, label in result.variants()}
        if found.get("Net1 valid") is None or found.get("Net1 full") is None:
            return ""
        gap = found["Net1 full"].mean - found["Net1 valid"].mean
        words = "full zero padding forgets height" if gap > 30 else "no gain from full padding"
        full, valid = (found[f"Net1 {padding}"].mean for padding in ("full", "valid"))
        return f"{words}: test {full:.0f} % against {valid:.0f} % without padding"

    @staticmethod
    def figure(result):
        """Accuracy when all images are moved up or down: flat where position is not seen."""
        nets = list(dict.fromkeys(chosen["net"] for _, chosen in result.run.variants))
        figure, axes = canvas(4.6 * len(nets) + 1, 3.6, ncols=len(nets), squeeze=False, sharey=True)
        for axis, net in zip(axes[0], nets, strict=True):
            shown = [(key, chosen) for key, chosen in result.run.variants if chosen["net"] == net]
            for colour, (key, chosen) in zip(COLOURS, shown, strict=False):
                moved = {down: result.summary(key, f"moved {down:+d}") for down in range(-16, 17)}
                means = {down: summary.mean for down, summary in moved.items() if summary is not None}
                axis.plot(
                    list(means),
                    list(means.values()),
                    "o-",
                    color=colour,
                    label=chosen["padding"],
                    markersize=3,
                )
            axis.set_title(net, loc="left", fontsize=10)
            axis.set_xlabel("images moved down by, pixels")
            axis.set_ylim(-3, 103)
        axes[0, 0].set_ylabel("accuracy, %")
        axes[0, -1].legend(
            title="padding", frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5)
        )
        return figure


@cache
def _occupied(count: int, clean: bool, padding: str, batch: int):
    """The same batches and validation images by their pixels that are not black, one in thirty of them."""
    (x, y), (val, _), _ = _images(count, clean, "cpu")
    with torch.device("meta"):
        layers = ConvNet.net1(padding).features  # Net2 has the same
    parts = zip(x.split(batch), y.split(batch), strict=True)
    return [(Occupied(images, layers), labels) for images, labels in parts], Occupied(val, layers)


@cache
def _images(count: int, clean: bool, device: str):
    sets = data.boxes(train=count, val=min(1000, count), test=1000, clean=clean)
    assert sets.val is not None
    return [
        ((part.inputs.float() / 255).to(device, memory_format=torch.channels_last), part.labels.to(device))
        for part in (sets.train, sets.val, sets.test)
    ]
