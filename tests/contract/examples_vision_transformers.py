"""ViT and the masked autoencoder, in several forms."""

from __future__ import annotations

import torch

from heedful.models import MaskedAutoencoder, ViT

from .example import Example

SMALL = {"layers": 2, "heads": 2, "dim": 16}
HIDDEN = torch.arange(8) % 4 != 1  # of 8 patches, two are shown


def images(dtype):
    return (torch.randn(3, 2, 8, 16, dtype=dtype),)


def vit(name, shape=(3, 5), **options):
    classes = options.pop("classes", 5)
    return Example(name, lambda: ViT((8, 16), 4, 2, classes, **SMALL, **options), images, shape)


def autoencoder(**options):
    return MaskedAutoencoder((8, 16), 4, 2, **SMALL, decoder_dim=8, decoder_heads=2, **options)


EXAMPLES = [
    vit("ViT"),
    vit("ViT, mean, sinusoidal", pool="mean", position="sinusoidal"),
    vit("ViT, no positions, ReLU, dropout", position="none", activation="relu", dropout=0.2),
    vit("ViT, quadratic kernel", similarity="polynomial(degree=2)", norm="rms", bias=False),
    vit("ViT without classes", (3, 16), classes=None, pool="mean"),
    Example("MaskedAutoencoder", autoencoder, images, (3, 2, 8, 16)),
    Example(
        "MaskedAutoencoder, given mask, learned positions",
        lambda: autoencoder(position="learned", normalize=False),
        lambda dtype: (*images(dtype), HIDDEN),
        (3, 2, 8, 16),
        compiles=False,  # how many patches a mask shows is in its values
    ),
]
