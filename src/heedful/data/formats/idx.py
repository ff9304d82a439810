"""idx, the format of MNIST: two zeros, a type, the number of dimensions, their sizes, then the entries."""

from __future__ import annotations

import gzip
import math
import struct
import zlib

import numpy as np
import torch
from torch import Tensor

from ..kinds import Examples, ImageData

UBYTE = 8


def read(data: bytes, name: str = "idx") -> Tensor:
    """The uint8 tensor in an idx file, gzipped or not.

    >>> read(bytes([0, 0, 8, 1]) + bytes([0, 0, 0, 3]) + bytes([5, 6, 7]))
    tensor([5, 6, 7], dtype=torch.uint8)
    """
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{name}: cannot be unpacked: {error}") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != UBYTE:
        raise ValueError(f"{name}: not an idx file of bytes: it begins with {data[:4].hex(' ') or 'nothing'}")
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise ValueError(f"{name}: ends within its header")
    shape = struct.unpack(f">{data[3]}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise ValueError(
            f"{name}: has {len(data) - start} entries, its header says {'×'.join(map(str, shape))}"
        )
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=start).reshape(shape).copy())


def mnist(files: dict[str, bytes]) -> ImageData:
    """MNIST from its four files."""

    def part(which: str) -> Examples:
        images, labels = (
            read(files[path], path)
            for path in (f"mnist/{which}-images-idx3-ubyte.gz", f"mnist/{which}-labels-idx1-ubyte.gz")
        )
        return Examples(images.unsqueeze(1), labels.long())

    return ImageData("mnist", part("train"), part("t10k"), classes=tuple("0123456789"))
