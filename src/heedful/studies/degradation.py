"""Twenty layers against fifty-six: deeper plain nets train worse, residual ones do not."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional as F

from .. import doctor
from ..lab import Figure, study
from ..lab.figures import COLOURS, canvas
from ..models import PlainNet, ResNet
from ..probes import gradient_norms
from ..training import Batches, train
from ._images import images as labelled
from ._images import moved

GRADIENT = "gradient norm"


@study(
    "degradation",
    "Why does a net of 56 layers train worse than one of 20?",
    source="University of California, EECS 182, 2023, homework 7, 6.1; He et al., CVPR 2016",
    cost={"quick": "60 s", "full": "10 min on a GPU"},
)
@dataclass
class Degradation:
    """Plain and residual nets of the same widths, told apart by what they make of their *training* set.

    `slope` is the gradient's norm in the first convolution over that in the last, before training: little a
    layer, but over fifty-six it adds up, and either way, up or down, no step size suits all layers.
    """

    net: Literal["plain", "residual"] = "plain"
    depth: Literal[20, 56] = 20
    norm: Literal["batch", "none"] = "batch"
    init: Literal["he", "xavier"] = "he"
    dataset: Literal["digits", "cifar10-10k", "cifar10"] = "cifar10-10k"
    epochs: int = 60
    batch: int = 128
    rate: float = 0.1

    axes = ("norm", "net", "depth")
    quick = {"dataset": "digits", "epochs": 8, "rate": 0.05, "axes": {"norm": ["batch"]}}
    full = {"axes": {"norm": ["batch", "none"]}}
    seeds = {"quick": 1, "full": 3}
    metrics = {
        "train": "error on the training images, %",
        "test": "error on the test images, %",
        "slope": "gradient of the first over that of the last convolution, at the start, log₁₀",
    }
    published = {
        ("batch", "residual", 20): {
            "test": Figure(8.75, within=1.0, source="He et al., whole CIFAR-10, 64k steps")
        },
        ("batch", "residual", 56): {
            "test": Figure(6.97, within=1.0, source="He et al., whole CIFAR-10, 64k steps")
        },
    }

    def run(self, seed, lab):
        sets = labelled(self.dataset, str(lab.device))
        x, y = sets.x, sets.y
        torch.manual_seed(seed)
        build = ResNet if self.net == "residual" else PlainNet
        model = build(self.depth, channels=x.shape[1], classes=sets.classes, norm=self.norm, init=self.init)
        model = model.to(lab.device, memory_format=torch.channels_last)
        generator = torch.Generator().manual_seed(seed)
        rate = self.rate if self.norm == "batch" else 0.1 * self.rate

        def loss(model, batch):
            images, labels = batch
            logits = model(moved(images, generator) if self.dataset != "digits" else images)
            return F.cross_entropy(logits, labels), {
                "error": 100 * (logits.argmax(1) != labels).float().mean()
            }

        convolutions = _gradients(model, x, y)
        _log(lab, convolutions, "before training")
        if seed == 0:
            lab.save("doctor.txt", _examined(model, x, y))
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
        feed = Batches(x, y, size=self.batch, seed=seed)
        steps = self.epochs * len(feed)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [steps // 2, 3 * steps // 4])
        moments = {steps // 10: "a tenth in", steps // 2: "halfway", steps: "at the end"}

        def along(training):
            if training.row is None and training.step in moments:
                _log(lab, _gradients(training.model, x, y), moments[training.step])

        train(
            model, loss, feed, optimizer, epochs=self.epochs, schedule=schedule, callbacks=[along],
            progress=False, store=lab,
        )  # fmt: skip
        return {
            "train": _error(model, x, y),
            "test": _error(model, sets.test, sets.truth),
            "slope": math.log10(max(convolutions[0], 1e-30) / max(convolutions[-1], 1e-30)),
        }

    @staticmethod
    def remarks(result):
        """What the doctor says of each net before it is trained."""
        said = []
        for trial in result.trials:
            path = trial.folder / "doctor.txt"
            if path.is_file():
                label = result.study.label(result.study.settings(**trial.settings))
                said.append(f"the doctor on {label}: {path.read_text()}")
        return said

    @staticmethod
    def verdict(result):
        said = []
        for norm in ("batch", "none"):
            for net in ("plain", "residual"):
                found = {
                    chosen["depth"]: summary.mean
                    for key, chosen, _ in result.variants()
                    if (chosen["norm"], chosen["net"]) == (norm, net)
                    and (summary := result.summary(key, "train")) is not None
                }
                if len(found) == 2:
                    said.append(
                        f"{net}, {norm} norm: {found[20]:.1f} % at 20 layers, {found[56]:.1f} % at 56"
                    )
        return "training error, " + "; ".join(said)

    @staticmethod
    def figure(result):
        """The loss while training, and the size of the gradient along depth, before and at the end."""
        figure, axes = canvas(13, 3.6, ncols=3)
        names = ("loss", f"{GRADIENT}, before training", f"{GRADIENT}, at the end")
        for place, (key, chosen, label) in enumerate(result.variants()):
            trials = [t for t in result.trials if t.key == key and t.status == "done"]
            for axis, name in zip(axes, names, strict=True):
                curves = [result.store.curves(trial).get(name, []) for trial in trials]
                if curves and curves[0]:
                    steps = [step for step, _ in curves[0]]
                    mean = [sum(c[n][1] for c in curves) / len(curves) for n in range(min(map(len, curves)))]
                    style = "-" if chosen["net"] == "residual" else "--"
                    axis.plot(
                        steps[: len(mean)], mean, style, color=COLOURS[place % len(COLOURS)], label=label
                    )
        axes[0].set_xlabel("step")
        axes[0].set_ylabel("training loss")
        for axis, name in zip(axes[1:], names[1:], strict=True):
            axis.set_xlabel("convolution, from the image on")
            axis.set_ylabel(name)
            axis.set_yscale("log")
        axes[2].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        return figure


def _gradients(model, x: torch.Tensor, y: torch.Tensor) -> list[float]:
    """The gradient's norm in every convolution, from the image on; the model is left as it is."""
    model = copy.deepcopy(model).train()  # whose running statistics change
    some = slice(0, 128)
    norms = gradient_norms(model, lambda: F.cross_entropy(model(x[some]), y[some]))
    return [norms[f"{name}.weight"] for name, m in model.named_modules() if isinstance(m, torch.nn.Conv2d)]


def _log(lab, norms: list[float], moment: str) -> None:
    for place, value in enumerate(norms):
        lab.log(place, **{f"{GRADIENT}, {moment}": value})


def _examined(model, x: torch.Tensor, y: torch.Tensor) -> str:
    """The doctor's findings, a sentence each, before anything is trained."""
    report = doctor.examine(copy.deepcopy(model), F.cross_entropy, (x[:64], y[:64]))
    return (
        "; ".join(f"{found.what} (healthy: {found.kind.healthy})" for found in report.findings) or "healthy"
    )


def _error(model, images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        wrong = [
            (model(x).argmax(1) != y).float().sum()
            for x, y in zip(images.split(500), labels.split(500), strict=True)
        ]
    return 100 * float(torch.stack(wrong).sum()) / len(labels)
