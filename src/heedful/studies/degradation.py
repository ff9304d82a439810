"""Twenty layers against fifty-six: deeper plain nets train worse, residual ones do not."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional as F

from .. import doctor
from ..lab import Count, Figure, Rate, study
from ..lab.figures import COLOURS, canvas, mean_curve
from ..models import PlainNet, ResNet
from ..probes import gradient_norms
from ..training import train
from ._images import batches
from ._images import images as labelled

GRADIENT = "gradient norm"
PAPER = "He et al. on whole CIFAR-10, 64k steps"
RESIDUAL = {20: 8.75, 56: 6.97}  # test error, %, by depth


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
    layer, but over fifty-six it adds up, and either way, up or down, no step size suits all layers. Without
    norm the rate is a tenth. A net whose loss stops being a number counts with the errors it then makes.
    """

    net: Literal["plain", "residual"] = "plain"
    depth: Literal[20, 56] = 20
    norm: Literal["batch", "none"] = "batch"
    init: Literal["he", "xavier"] = "he"
    dataset: Literal["digits", "cifar10-10k", "cifar10"] = "cifar10-10k"
    epochs: Count = 60
    batch: Count = 128
    rate: Rate = 0.1
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # bfloat16 on a GPU

    axes = ("dataset", "norm", "init", "net", "depth")
    quick = {
        "epochs": 8,
        "rate": 0.05,
        "axes": {"dataset": ["digits"], "norm": ["batch"], "init": ["he"]},
    }
    full = {"axes": {"dataset": ["cifar10-10k"]}}
    seeds = {"quick": 1, "full": 3}
    metrics = {
        "train": "error on the training images, %",
        "test": "error on the test images, %",
        "slope": "gradient of the first over that of the last convolution, at the start, log₁₀",
        "diverged": "runs whose loss stopped being a number, %",
    }
    published = {
        ("cifar10", "batch", "he", "residual", depth): {"test": Figure(error, within=1.0, source=PAPER)}
        for depth, error in RESIDUAL.items()
    }
    also = {
        PAPER: {
            ("cifar10-10k", "batch", "he", "residual", depth): {"test": Figure(error)}
            for depth, error in RESIDUAL.items()
        }
    }

    def run(self, seed, lab):
        sets = labelled(self.dataset, str(lab.device))
        x, y = sets.x, sets.y
        torch.manual_seed(seed)
        build = ResNet if self.net == "residual" else PlainNet
        model = build(self.depth, channels=x.shape[1], classes=sets.classes, norm=self.norm, init=self.init)
        model = model.to(lab.device, memory_format=torch.channels_last)
        rate = self.rate if self.norm == "batch" else 0.1 * self.rate

        def loss(model, batch):
            images, labels = batch
            logits = model(images)
            return F.cross_entropy(logits, labels), {
                "error": 100 * (logits.argmax(1) != labels).float().mean()
            }

        convolutions = _gradients(model, x, y)
        _log(lab, convolutions, "before training")
        if seed == 0:
            lab.save("doctor.txt", _examined(model, x, y))
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4)
        generator = torch.Generator().manual_seed(seed)
        feed = batches(self.dataset, x, y, size=self.batch, seed=seed, generator=generator)
        steps = self.epochs * len(feed)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [steps // 2, 3 * steps // 4])
        moments = {steps // 10: "a tenth in", steps // 2: "halfway", steps: "at the end"}

        def along(training):
            if training.row is None and training.step in moments:
                _log(lab, _gradients(training.model, x, y), moments[training.step])

        diverged = False
        try:
            train(
                model, loss, feed, optimizer, epochs=self.epochs, schedule=schedule, callbacks=[along],
                precision=self.precision, capture=lab.device.type == "cuda", progress=False, store=lab,
            )  # fmt: skip
        except FloatingPointError:  # which is an answer, too
            diverged = True
        return {
            "diverged": 100.0 * diverged,
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
        for norm, init in _forms(result):
            for net in ("plain", "residual"):
                found = {
                    chosen["depth"]: summary.mean
                    for key, chosen, _ in result.variants()
                    if (chosen["norm"], chosen["init"], chosen["net"]) == (norm, init, net)
                    and (summary := result.summary(key, "train")) is not None
                }
                if len(found) == 2:
                    said.append(
                        f"{net}, {norm} norm, {init}: {found[20]:.1f} % at 20 layers, {found[56]:.1f} % at 56"
                    )
        return "training error, " + "; ".join(said) if said else "no pair to compare"

    @staticmethod
    def figure(result):
        """The loss while training, and the size of the gradient along depth, before and at the end.

        A row for every norm and initialisation.
        """
        forms = _forms(result)
        figure, axes = canvas(13, 0.6 + 3.0 * len(forms), nrows=len(forms), ncols=3, squeeze=False)
        names = ("loss", f"{GRADIENT}, before training", f"{GRADIENT}, at the end")
        for row, form in zip(axes, forms, strict=True):
            for key, chosen, _ in result.variants():
                if (chosen["norm"], chosen["init"]) != form:
                    continue
                style = "-" if chosen["net"] == "residual" else "--"
                colour = COLOURS[0] if chosen["depth"] == 20 else COLOURS[1]
                for axis, name in zip(row, names, strict=True):
                    steps, mean = mean_curve(result, key, name)
                    steps, mean = _thinned(steps, mean) if name == "loss" else (steps, mean)
                    label = f"{chosen['net']} {chosen['depth']}"
                    if steps:
                        axis.plot(steps, mean, style, color=colour, label=label)
            row[0].set_title(f"{form[0]} norm, {form[1]}" if form[0] != "none" else f"no norm, {form[1]}")
            # What diverges leaves the picture; a guess that knows nothing has ln(10) = 2.3.
            row[0].set(xlabel="step", ylabel="training loss", ylim=(0, min(row[0].get_ylim()[1], 5)))
            for axis, name in zip(row[1:], names[1:], strict=True):
                axis.set(xlabel="convolution, from the image on", ylabel=name, yscale="log")
            row[1].legend(frameon=False, fontsize=8)
        return figure


def _forms(result) -> list[tuple[str, str]]:
    """Norm and initialisation, as they were asked about."""
    return list(dict.fromkeys((chosen["norm"], chosen["init"]) for _, chosen, _ in result.variants()))


def _thinned(steps: list[int], values: list[float], points: int = 200) -> tuple[list[int], list[float]]:
    """Means over stretches, at most so many."""
    width = -(-len(steps) // points)
    parts = [values[at : at + width] for at in range(0, len(values), width)] if width else []
    return steps[::width] if width else [], [sum(part) / len(part) for part in parts]


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
