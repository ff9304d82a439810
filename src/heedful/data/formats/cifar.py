"""CIFAR-10: the public tar of records (a label, then 3×32×32 bytes), and a local part of it in an npz."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import torch

from ..kinds import Examples, ImageData
from .tar import members

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORD = 1 + 3 * 32 * 32
TRAIN = [f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)]
TEST = "cifar-10-batches-bin/test_batch.bin"


def whole(files: dict[str, bytes]) -> ImageData:
    """All 60,000 images, in the official order."""
    (name,) = files
    batches = members(files[name], [*TRAIN, TEST], name)
    train, test = _records(batches, TRAIN, name), _records(batches, [TEST], name)
    return ImageData("cifar10", train, test, classes=CLASSES)


def part(files: dict[str, bytes]) -> ImageData:
    """The first 1,000 training and 200 test images of each class: from the npz, else cut from the whole."""
    (name,) = files
    if name.endswith(".npz"):
        arrays = arrays_of(files[name], name)
        train, test = (
            Examples(
                undo_differences(arrays[f"x_{which}_res"]), torch.from_numpy(arrays[f"y_{which}"]).long()
            )
            for which in ("train", "test")
        )
    else:
        every = whole(files)
        train, test = first_of_each(every.train, 1000), first_of_each(every.test, 200)
    return ImageData("cifar10-10k", train, test, classes=CLASSES)


def arrays_of(data: bytes, name: str = "npz") -> dict[str, np.ndarray]:
    """The arrays of an npz; pickled objects are refused."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            return dict(found)
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{name}: cannot be read: {error}") from error


def undo_differences(residual: np.ndarray) -> torch.Tensor:
    """Images from differences mod 256: of green to the pixels above and before, of red and blue to green."""
    plane = np.cumsum(np.cumsum(residual, axis=2, dtype=np.uint8), axis=3, dtype=np.uint8)
    green = plane[:, 0]
    return torch.from_numpy(np.stack([plane[:, 1] + green, green, plane[:, 2] + green], axis=1))


def first_of_each(examples: Examples, count: int) -> Examples:
    """The first `count` examples of each class, in the order they had.

    >>> first_of_each(Examples(torch.arange(5), torch.tensor([1, 1, 0, 1, 0])), 1).inputs
    tensor([0, 2])
    """
    labels = examples.labels
    rank = torch.zeros_like(labels)
    for label in labels.unique():
        mine = labels == label
        rank[mine] = torch.arange(int(mine.sum()))
    return examples.take(rank < count)


def _records(batches: dict[str, bytes], paths: list[str], name: str) -> Examples:
    for path in paths:
        if len(batches[path]) % RECORD:
            raise ValueError(f"{name}: {path} has {len(batches[path])} bytes, not a multiple of {RECORD}")
    joined = bytearray().join(batches[path] for path in paths)
    table = torch.frombuffer(joined, dtype=torch.uint8).reshape(-1, RECORD)
    return Examples(table[:, 1:].reshape(-1, 3, 32, 32), table[:, 0].long())
