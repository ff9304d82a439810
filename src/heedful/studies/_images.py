"""Labelled images as studies train on them, and what `heedful classify` must know to show a net others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .. import data
from ..training import Batches


@dataclass(frozen=True, eq=False)
class Images:
    """Training and test images, (pixel − mean) / deviation for pixels from 0 to 1, and their labels."""

    x: Tensor
    y: Tensor
    test: Tensor
    truth: Tensor
    notes: dict[str, Any]  # for `lab.keep(model, use="classes", …)`

    @property
    def classes(self) -> int:
        return len(self.notes["classes"])

    def pixels(self, images: Tensor) -> Tensor:
        """From 0 to 1 again, to be looked at."""
        return (images * self.notes["deviation"] + self.notes["mean"]).clamp(0, 1)


@cache
def images(name: str, device: str, mean: float = 0.5, deviation: float = 0.25) -> Images:
    """A dataset of that name."""
    sets = data.load(name).scaled()
    shown = [
        ((part.inputs - mean) / deviation).to(device, memory_format=torch.channels_last)
        for part in (sets.train, sets.test)
    ]
    _, channels, height, width = shown[0].shape
    notes = {
        "dataset": name,
        "classes": list(sets.classes),
        "channels": channels,
        "size": [height, width],
        "mean": mean,
        "deviation": deviation,
        "brightness": round(sets.train.inputs.mean().item(), 4),  # of a usual image, 0 to 1
    }
    return Images(shown[0], sets.train.labels.to(device), shown[1], sets.test.labels.to(device), notes)


def moved(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Four pixels around, a crop anywhere, half of them mirrored: as the ResNet paper trains.

    Without a generator it draws from torch's own, which checkpoints remember.
    """
    size = images.shape[-1]
    padded = F.pad(images, (4, 4, 4, 4))
    down, right = torch.randint(9, (2,), generator=generator).tolist()
    images = padded[..., down : down + size, right : right + size]
    mirrored = (torch.rand(len(images), generator=generator) < 0.5).to(images.device, non_blocking=True)
    return torch.where(mirrored[:, None, None, None], images.flip(-1), images)


def batches(
    dataset: str, *tensors: Tensor, generator: torch.Generator | None = None, **options: Any
) -> Batches:
    """`Batches` whose first tensor is images: photographs are `moved` anew every time, others stay."""
    if "cifar" not in dataset:
        return Batches(*tensors, **options)
    return _Moved(*tensors, generator=generator, **options)


class _Moved(Batches):
    def __init__(self, *tensors: Tensor, generator: torch.Generator | None, **options: Any):
        super().__init__(*tensors, **options)
        self.generator = generator

    def take(self, rows: Tensor | slice) -> Tensor | tuple[Tensor, ...]:
        taken = super().take(rows)
        if isinstance(taken, Tensor):
            return moved(taken, self.generator)
        return moved(taken[0], self.generator), *taken[1:]
