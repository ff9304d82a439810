"""What a bottleneck learns: the directions that vary most, and whether they are the ones that matter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from .. import data
from ..lab import Count, Figure, study
from ..lab.figures import COLOURS, canvas, upwards
from ..models import Autoencoder
from ..training import Batches, train


def _ours(loss, probe):
    """Our own re-run of the course's notebook, one repeat: a guide, not a published mean."""
    source = "one repeat of the course's notebook"
    return {
        "loss": Figure(loss, within=max(1.0, 0.02 * loss), source=source),
        "probe": Figure(probe, within=2.0, source=source),
    }


@study(
    "autoencoders",
    "What does a bottleneck keep, and is it of use?",
    source="University of Toronto CSC413, autoencoders and linear probes",
    cost={"quick": "30 s", "full": "20 min"},
)
@dataclass
class Autoencoders:
    """100 dimensions of which 20 vary ten times as much as the rest, and the label is in those; or MNIST.

    A linear probe reads the label off the code after training. On the synthetic set the least possible loss
    is the variance left by principal components: 227.5 at 5, 79.8 at 20.
    """

    dataset: Literal["synthetic", "mnist", "digits"] = "synthetic"
    kind: Literal["untrained", "vanilla", "denoising", "masked"] = "vanilla"
    latent: Literal[5, 20, 64, 100, 500] = 20
    epochs: Count | None = None  # 10 on the synthetic set, 5 on MNIST
    probe_epochs: Count | None = None  # 50 in batches of 100 on the synthetic set, 1,000 whole ones on MNIST
    labels: Count = 200  # that the probe is given on MNIST and digits, drawn anew by each seed

    axes = ("dataset", "kind", "latent")
    quick = {
        "epochs": 4,
        "probe_epochs": 8,
        "axes": {"dataset": ["synthetic"], "kind": ["untrained", "vanilla"], "latent": [5, 20]},
    }
    full = {"axes": {"dataset": ["synthetic", "mnist"]}}
    seeds = {"quick": 1, "full": 5}
    metrics = {
        "loss": "reconstruction of clean validation samples, summed over features",
        "probe": "accuracy of a linear probe on the code, %",
    }
    published = {
        ("synthetic", "vanilla", 5): _ours(229.5, 66.5),
        ("synthetic", "vanilla", 20): _ours(79.9, 98.2),
        ("synthetic", "vanilla", 100): _ours(0.77, 98.0),
        ("synthetic", "vanilla", 500): _ours(0.0, 98.5),
        ("synthetic", "denoising", 20): _ours(80.1, 97.1),
        ("synthetic", "masked", 20): _ours(89.5, 97.2),
        ("mnist", "untrained", 64): {"probe": Figure(62.5, within=3.0)},
        ("mnist", "vanilla", 64): {"probe": Figure(77.9, within=3.0)},
        ("mnist", "denoising", 64): {"probe": Figure(82.6, within=3.0)},
        ("mnist", "masked", 64): {"probe": Figure(79.9, within=3.0)},
    }

    @property
    def sensible(self) -> bool:
        """Pictures have the code of 64 that the course uses; the synthetic set the others."""
        return (self.latent == 64) == (self.dataset != "synthetic")

    def run(self, seed, lab):
        sets = _sets(self.dataset, str(lab.device))
        if self.dataset != "synthetic":
            generator = torch.Generator().manual_seed(seed)
            some = torch.randperm(len(sets["train"]), generator=generator)[: self.labels].to(lab.device)
            sets = {**sets, "probe": sets["train"][some], "probe labels": sets["train labels"][some]}
        torch.manual_seed(seed)
        synthetic = self.dataset == "synthetic"
        model = Autoencoder(
            sets["train"].shape[1],
            [self.latent] if synthetic else [256, self.latent],
            activation="linear" if synthetic else "relu",
            kind="vanilla" if self.kind == "untrained" else self.kind,
        ).to(lab.device)

        def measured(model):
            """The loss on clean samples, and what a probe reads off their codes."""
            model.eval()
            with torch.no_grad():
                loss = (model(sets["val"]) - sets["val"]).square().sum(1).mean().item()
                codes, test_codes = model.encode(sets["probe"]), model.encode(sets["test"])
            rounds = self.probe_epochs or (50 if synthetic else 1000)
            size = 100 if synthetic else len(codes)
            probe = _probe(codes, sets["probe labels"], test_codes, sets["test labels"], seed, rounds, size)
            return {"loss": loss, "probe": 100 * probe}

        lab.log(0, **{f"val {name}": value for name, value in measured(model).items()})
        if self.kind == "untrained":
            return measured(model)

        def each_epoch(training):
            if training.row is not None:
                found = measured(training.model)
                lab.log(int(training.row["epoch"]), **{f"val {name}": value for name, value in found.items()})

        train(
            model,
            lambda model, batch: model.loss(batch[0] if isinstance(batch, tuple | list) else batch),
            Batches(sets["train"], size=100, seed=seed),
            torch.optim.Adam(model.parameters(), lr=5e-4 if synthetic else 1e-3),
            epochs=self.epochs or (10 if synthetic else 5),
            callbacks=[each_epoch] if synthetic else [],
            progress=False,
        )
        lab.save("model.safetensors", model)
        return measured(model)

    @staticmethod
    def figure(result):
        """Loss and probe after every epoch, a line a variant."""
        figure, axes = canvas(9.5, 3.6, ncols=2)
        for axis, name in zip(axes, ("loss", "probe"), strict=True):
            for place, (key, _, label) in enumerate(result.variants()):
                curves = [
                    dict(result.store.curves(trial).get(f"val {name}", []))
                    for trial in result.trials
                    if trial.key == key and trial.status == "done"
                ]
                epochs = sorted(set.intersection(*map(set, curves))) if curves else []
                if len(epochs) > 1:
                    means = [sum(curve[e] for curve in curves) / len(curves) for e in epochs]
                    style = "-" if place < len(COLOURS) else "--"
                    axis.plot(epochs, means, style, color=COLOURS[place % len(COLOURS)], label=label)
            axis.set_xlabel("epoch")
            upwards(axis, result.study.metrics[name])
        axes[0].set_yscale("symlog", linthresh=1)
        axes[1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        return figure


def _probe(codes, labels, test_codes, test_labels, seed: int, epochs: int, size: int) -> float:
    """The course's probe: a linear layer trained by Adam for so many epochs."""
    torch.manual_seed(seed)
    head = nn.Linear(codes.shape[1], int(labels.max()) + 1).to(codes.device)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-3)
    feed = Batches(codes, labels, size=size, seed=seed)
    train(
        head,
        lambda head, batch: F.cross_entropy(head(batch[0]), batch[1]),
        feed,
        optimizer,
        epochs=epochs,
        progress=False,
    )
    with torch.no_grad():
        return (head(test_codes).argmax(1) == test_labels).float().mean().item()


@cache
def _sets(name: str, device: str) -> dict[str, torch.Tensor]:
    """Training, validation, labelled samples for the probe, and test."""
    if name == "synthetic":
        found = data.autoencoder_set()
        assert found.val is not None
        parts = {
            "train": found.train.inputs, "val": found.val.inputs,
            "probe": found.val.inputs, "probe labels": found.val.labels,
            "test": found.test.inputs, "test labels": found.test.labels,
        }  # fmt: skip
    else:
        found = data.load(name)
        images = found.train.inputs.flatten(1).float() / (16 if name == "digits" else 255)
        held = len(images) // 10
        test = found.test.inputs.flatten(1).float() / (16 if name == "digits" else 255)
        parts = {
            "train": images[:-held], "train labels": found.train.labels[:-held], "val": images[-held:],
            "test": test, "test labels": found.test.labels,
        }  # fmt: skip
    return {key: value.to(device) for key, value in parts.items()}
