"""Cells in a section, as an electron microscope might show them, and where their membranes are."""

from __future__ import annotations

import numpy as np
import torch

from ..kinds import SegmentationData


def membranes(
    *, count: int = 30, size: int = 128, cell: float = 28.0, noise: float = 0.12, seed: int = 0
) -> SegmentationData:
    """`count` pictures of `size` pixels a side, with cells about `cell` pixels wide, and their masks.

    A pixel is membrane near the line between the two nearest nuclei, in a plane that has been bent; about a
    fifth is. Membranes are dark and of uneven darkness; so are mitochondria inside the cells, which
    are not membrane: brightness alone does not tell. Four fifths are for training.

    >>> membranes(count=5, size=64)
    SegmentationData(membranes: 5 × 1×64×64, train 4, val 1, membrane / cell)
    """
    if count < 2:
        raise ValueError(
            f"membranes(): count={count} must be 2 or more, to train on some and validate on others"
        )
    if size < 16:
        raise ValueError(f"membranes(): size={size} must be 16 or more")
    if not 8 <= cell <= size:
        raise ValueError(f"membranes(): cell={cell} must be between 8 and size={size}")
    if not noise >= 0:
        raise ValueError(f"membranes(): noise={noise} must not be negative")
    draw = np.random.RandomState(seed)
    pairs = [_section(draw, size, cell, noise) for _ in range(count)]
    images, masks = (torch.from_numpy(np.stack(stack)) for stack in zip(*pairs, strict=True))
    number, train = torch.arange(count), min(count - 1, round(0.8 * count))
    return SegmentationData(
        "membranes",
        images.unsqueeze(1),
        masks.long(),
        train=number[:train],
        val=number[train:],
        classes=("membrane", "cell"),
    )


def _section(draw, size: int, cell: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    from scipy.ndimage import gaussian_filter
    from scipy.spatial import cKDTree

    def smooth(width: float) -> np.ndarray:
        """Noise of about unit size that varies over `width` pixels."""
        field = gaussian_filter(draw.standard_normal((size, size)), width, mode="wrap")
        return field / (field.std() + 1e-12)

    across, down = np.meshgrid(np.arange(size), np.arange(size))
    bent = np.stack([across + 0.12 * cell * smooth(cell / 3), down + 0.12 * cell * smooth(cell / 3)], axis=-1)
    room = size + 4 * cell
    nuclei = draw.random_sample((round((room / cell) ** 2), 2)) * room - 2 * cell
    distance, nearest = cKDTree(nuclei).query(bent, k=2)
    apart = np.linalg.norm(nuclei[nearest[..., 0]] - nuclei[nearest[..., 1]], axis=-1)
    wall = (distance[..., 1] ** 2 - distance[..., 0] ** 2) / (
        2 * apart
    )  # pixels to the border of the two cells
    wall /= 1 + 0.2 * smooth(cell / 2)

    thickness = 0.055 * cell
    mask = wall > thickness
    darkness = (0.75 + 0.12 * smooth(cell / 4)) * np.exp(-((wall / (1.2 * thickness)) ** 2))
    inside = 0.68 + 0.05 * smooth(cell / 2) + 0.03 * smooth(1.5)
    for _ in range(max(1, round(0.7 * (size / cell) ** 2))):
        inside *= 1 - _mitochondrion(draw, across, down, size, cell, wall, thickness)
    image = gaussian_filter(inside * (1 - 0.85 * darkness), 0.7)
    image += noise * gaussian_filter(draw.standard_normal((size, size)), 0.5)
    return (np.clip(image, 0, 1) * 255).astype(np.uint8), mask


def _mitochondrion(draw, across, down, size: int, cell: float, wall, thickness: float) -> np.ndarray:
    """How much an ellipse with a dark rim and stripes inside takes away, away from the walls."""
    (x, y), turn = draw.random_sample(2) * size, draw.random_sample() * np.pi
    long, short = cell * draw.uniform(0.1, 0.3), cell * draw.uniform(0.07, 0.16)
    along = (across - x) * np.cos(turn) + (down - y) * np.sin(turn)
    beside = (down - y) * np.cos(turn) - (across - x) * np.sin(turn)
    radius = np.hypot(along / long, beside / short)
    rim = np.exp(-(((radius - 1) / 0.25) ** 2))
    stripes = (radius < 1) * (0.5 + 0.25 * np.sin(2 * np.pi * along / (0.5 * short)))
    return 0.55 * np.maximum(rim, stripes) * (wall > 1.5 * thickness)
