"""Autoencoders over flat vectors and images."""

from __future__ import annotations

import torch

from heedful.models import Autoencoder

from .example import Example


def vectors(dtype):
    return (torch.randn(3, 6, dtype=dtype),)


def images(dtype):
    return (torch.randn(3, 1, 4, 3, dtype=dtype),)


EXAMPLES = [
    Example("autoencoder", lambda: Autoencoder(6, [5, 2]), vectors, (3, 6)),
    Example(
        "autoencoder, linear, tied",
        lambda: Autoencoder(6, [2], activation="linear", tied=True, decay=0.1),
        vectors,
        (3, 6),
    ),
    Example(
        "autoencoder, denoising", lambda: Autoencoder(12, [5, 2], kind="denoising"), images, (3, 1, 4, 3)
    ),
    Example("autoencoder, masked", lambda: Autoencoder(12, [5, 2], kind="masked"), images, (3, 1, 4, 3)),
]
