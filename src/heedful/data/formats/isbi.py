"""ISBI 2012: grey PNGs, read by Pillow, which matplotlib brings along."""

from __future__ import annotations

import io

import numpy as np
import torch
from torch import Tensor

from ..kinds import SegmentationData


def png(data: bytes, name: str = "png") -> Tensor:
    """An 8-bit grey PNG as (height, width) uint8."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.mode != "L":
                raise ValueError(f"expected 8-bit grey, mode 'L', got {image.mode!r}")
            return torch.from_numpy(np.array(image))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name}: cannot be read: {error}") from error


def load(files: dict[str, bytes]) -> SegmentationData:
    """Thirty slices, 24 to train on and 6 to validate.

    Slices 0–14 are visibly smoother than 15–29, so every fifth is held out: three of either half.
    """

    def stack(kind: str) -> Tensor:
        paths = (f"isbi2012/train/{kind}/{number}.png" for number in range(30))
        return torch.stack([png(files[path], path) for path in paths])

    number = torch.arange(30)
    held_out = number % 5 == 2
    return SegmentationData(
        "isbi2012",
        stack("image").unsqueeze(1),
        (stack("label") > 127).long(),
        train=number[~held_out],
        val=number[held_out],
        classes=("membrane", "cell"),
    )
