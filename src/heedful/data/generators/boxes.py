"""A red and a green box: a class is which of them is to the left, and its height betrays it."""

from __future__ import annotations

import numpy as np
import torch

from ..kinds import Examples, ImageData

SIZE, BOX = 32, 4
HEIGHT = {0: 7, 1: 23}  # where the boxes of a class stand, more or less
SHIFT = {0: 16, 1: -16}  # the test swaps the heights


def boxes(
    *, train: int = 2000, val: int = 1000, test: int = 1000, clean: bool = False, seed: int = 42
) -> ImageData:
    """Images 3×32×32, black but for a red (channel 0) and a green (channel 1) 4×4 box, uint8 0 or 255.

    Even images are class 0, red left of green, near the top; odd ones are class 1, green left of red, near
    the bottom. In the test part the heights are swapped, so whoever learned the height is wrong every time.

    The random numbers start anew for each part, as in the published experiment: val equals the first training
    images, and test is those images moved. `clean=True` draws on instead and never repeats an image, so that
    val is a validation set and test has no moved training image either.

    >>> sets = boxes(train=4, val=2, test=2)
    >>> sets
    ImageData(boxes: train 4, val 2, test 2 × 3×32×32 uint8, 2 classes)
    >>> bool((sets.val.inputs == sets.train.inputs[:2]).all())
    True
    """
    for name, count in {"train": train, "val": val, "test": test}.items():
        if count < 1:
            raise ValueError(f"boxes(): {name}={count} must be 1 or more")
    if clean:
        if train + val + test > 10_000:
            raise ValueError(f"boxes(): clean=True has room for 10000 images, got {train + val + test}")
        corners = _unlike(train + val + test, np.random.RandomState(seed))
        parts = np.split(corners, [train, train + val])
    else:
        parts = [_corners(count, np.random.RandomState(seed)) for count in (train, val, test)]
    return ImageData(
        "boxes",
        train=_draw(parts[0]),
        val=_draw(parts[1]),
        test=_draw(parts[2], SHIFT),
        classes=("red left", "green left"),
    )


def _corner_pair(draw: np.random.RandomState, height: int) -> tuple[int, int, int, int]:
    """x1 y1 of the left box, x2 y2 of the right, in this order of drawing."""
    x1 = draw.randint(10)
    y1 = draw.randint(-4, 4) + height
    while True:
        x2 = draw.randint(x1, SIZE - BOX)
        y2 = draw.randint(-4, 4) + height
        if x2 - x1 > BOX:
            return x1, y1, x2, y2


def _corners(count: int, draw: np.random.RandomState) -> np.ndarray:
    return np.array([_corner_pair(draw, HEIGHT[place % 2]) for place in range(count)])


def _unlike(count: int, draw: np.random.RandomState) -> np.ndarray:
    """The same, each pair once."""
    found: dict[tuple, None] = {}
    while len(found) < count:
        pair = _corner_pair(draw, HEIGHT[len(found) % 2])
        found.setdefault(pair)
    return np.array(list(found))


def _draw(corners: np.ndarray, shift: dict[int, int] | None = None) -> Examples:
    images = torch.zeros(len(corners), 3, SIZE, SIZE, dtype=torch.uint8)
    labels = torch.arange(len(corners)) % 2
    for image, (x1, y1, x2, y2), label in zip(images, corners, labels.tolist(), strict=True):
        down = shift[label] if shift else 0
        left, right = (0, 1) if label == 0 else (1, 0)
        image[left, y1 + down : y1 + down + BOX, x1 : x1 + BOX] = 255
        image[right, y2 + down : y2 + down + BOX, x2 : x2 + BOX] = 255
    return Examples(images, labels)
