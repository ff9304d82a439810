"""What becomes of a classifier when its images are turned or moved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor, *, batch: int = 500) -> float:
    """The share of images put into the right class, in evaluation mode; the mode is put back."""
    training = model.training
    model.eval()
    try:
        right = sum(
            int((model(x).argmax(1) == y).sum())
            for x, y in zip(images.split(batch), labels.split(batch), strict=True)
        )
    finally:
        model.train(training)
    return right / max(1, len(labels))


def rotate(images: Tensor, degrees: float | Tensor) -> Tensor:
    """Images turned counter-clockwise about their centre; nearest pixel, zero fill.

    Images are (batch, channels, height, width). `degrees` is one angle, or one an image. Multiples of 90 on
    square images only move pixels.

    >>> rotate(torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]]), 90)[0, 0]
    tensor([[0., 0.],
            [1., 0.]])
    """
    if images.dim() != 4:
        raise ValueError(
            f"rotate(): images have shape {tuple(images.shape)}; they are (batch, channels, height, width)."
        )
    count, _, height, width = images.shape
    angle = torch.as_tensor(degrees, dtype=torch.float64, device=images.device).expand(count) * (
        math.pi / 180
    )
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    # A pixel of the result at (x, y), y down, shows what lay at the angle turned back.
    turn = torch.stack(
        [cos, -sin * height / width, zero, sin * width / height, cos, zero], 1
    ).view(count, 2, 3)  # fmt: skip
    grid = F.affine_grid(turn, [count, 1, height, width], align_corners=False)
    # Where the place lies between two pixels, rounding must not decide by an error of 1e-16.
    grid = (grid * 1e9).round() / 1e9
    wide = images if images.is_floating_point() else images.float()
    return F.grid_sample(wide, grid.to(wide.dtype), mode="nearest", align_corners=False).to(images.dtype)


def rotation_curve(
    model: nn.Module, images: Tensor, labels: Tensor, degrees: Sequence[float] = tuple(range(0, 361, 30))
) -> dict[float, float]:
    """Accuracy against the angle the images are turned by."""
    return {angle: accuracy(model, rotate(images, angle), labels) for angle in degrees}


def shift(images: Tensor, down: int = 0, right: int = 0) -> Tensor:
    """Images moved by whole pixels, zeros coming in, what leaves the frame lost.

    >>> shift(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), down=1)[0, 0]
    tensor([[0., 0.],
            [1., 2.]])
    """
    height, width = images.shape[-2:]
    if abs(down) >= height or abs(right) >= width:
        return torch.zeros_like(images)
    moved = torch.zeros_like(images)
    rows, columns = slice(max(0, down), height + min(0, down)), slice(max(0, right), width + min(0, right))
    from_rows, from_columns = (
        slice(max(0, -down), height - max(0, down)),
        slice(max(0, -right), width - max(0, right)),
    )
    moved[..., rows, columns] = images[..., from_rows, from_columns]
    return moved


def shift_map(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    down: Iterable[int] = (0,),
    right: Iterable[int] = (0,),
) -> dict[tuple[int, int], float]:
    """Accuracy against (down, right), the pixels the images are moved by."""
    right = list(right)
    return {(dy, dx): accuracy(model, shift(images, dy, dx), labels) for dy in down for dx in right}
