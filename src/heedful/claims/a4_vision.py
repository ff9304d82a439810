"""A4 and E1.11, E1.12: images as sequences of patches."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ..models import ViT
from ..nn import LearnedPositions, PatchEmbed, SinusoidalPositions, TransformerBlock
from ..probes import accuracy, attention_distance
from .claim import claim
from .documents import A, E
from .evidence import at_least, at_most, curve, note, same
from .studies import judged


@lru_cache(32)
def trained_vit(
    seed: int, activation: str = "gelu", position: str = "learned", epochs: int = 5
) -> tuple[ViT, float]:
    """A ViT of three layers on digits, 16 patches of 2 × 2; the model and its test accuracy, %."""
    from .. import data

    torch.manual_seed(seed)
    sets = data.load("digits")
    x, y = sets.train.inputs.float() / 16, sets.train.labels
    options: Any = {"activation": activation, "position": position}
    model = ViT(8, 2, 1, 10, layers=3, heads=4, dim=32, hidden=64, **options)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()
    return model, 100 * accuracy(model, sets.test.inputs.float() / 16, sets.test.labels)


def distances(model: ViT) -> Tensor:
    """Mean attention distance over that of listening to everyone alike, (layers, heads), between patches."""
    from .. import data

    images = data.load("digits").test.inputs[:100].float() / 16
    grid = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
    with torch.no_grad():
        weights = model.attention_maps(images)[..., 1:, 1:]  # without the class token
    return attention_distance(weights, grid).mean(1) / attention_distance(torch.ones(16, 16), grid)


@claim(
    "A4",
    A,
    "A vision transformer reads patches as tokens with a class token and learned positions; some heads of "
    "the first layer look at the whole image, and attention distance grows with depth.",
    stated="global heads in layer 1; distance grows with depth",
    corrected="It learns, and heads of the first layer look as far as uniform attention does. Distance "
    "grows with depth by less than a tenth here: at this size (16 patches, three layers) every layer looks "
    "almost everywhere already.",
)
def vision_transformer(draw, *, train=trained_vit, probe=distances):
    model, right = train(draw.seed)
    far = probe(model)
    yield note("judged", "a direct measurement: three layers, 16 patches of scikit-learn's digits")
    yield same("tokens: patches and a class token", model.embed(torch.zeros(1, 1, 8, 8)).shape[1], 17)
    yield at_least("test accuracy, %", right, 75)
    yield at_least("farthest head of layer 1 over uniform attention", float(far[0].max()), 0.9)
    growth = float(far[-1].mean() / far[0].mean())
    yield at_least("mean distance, last layer over first", growth, 1.15, role="detail")
    yield at_most("mean distance, last layer over first, at most", growth, 1.15, role="corrected")
    yield at_least(
        "mean distance of the last layer over uniform attention",
        float(far[-1].mean()),
        0.85,
        role="corrected",
    )
    ranked = far.sort(1).values
    for head in range(far.shape[1]):
        yield curve(
            "attention distance",
            f"head {head + 1}, by distance",
            range(1, len(far) + 1),
            ranked[:, head],
            across="layer",
            up="distance over uniform attention's",
        )


def convolved(embed: PatchEmbed, images: Tensor) -> Tensor:
    """The same tokens by a convolution whose stride is its kernel."""
    weight = embed.project.weight.view(-1, embed.channels, *embed.patch)
    return F.conv2d(images, weight, embed.project.bias, stride=embed.patch).flatten(2).mT


@claim(
    "E1.11",
    E,
    "Patch embedding is a convolution whose stride is its kernel.",
    stated="convolution with stride = kernel",
)
def patch_embedding(draw, *, convolution=convolved):
    for _ in range(3):
        patch, channels, dim = draw.integer(1, 5), draw.integer(1, 4), draw.integer(1, 9)
        size = patch * draw.integer(1, 6)
        embed = PatchEmbed(size, patch, channels, dim).double()
        images = draw.normal(2, channels, size, size)
        yield same(
            "patch embedding against the convolution",
            embed(images),
            convolution(embed, images),
            tolerance=1e-12,
        )


def block(activation: str, order: str) -> TransformerBlock:
    options: Any = {"activation": activation, "order": order}
    return TransformerBlock(8, heads=2, **options).double()


ORIGINAL = ("relu", "post")


@claim(
    "E1.12",
    E,
    "A vision transformer differs from the original transformer by GELU and learned positions.",
    stated="GELU for ReLU, learned for sinusoidal positions",
    corrected="By these, and by where it normalises: before each branch, not after the sum. With all "
    "three changed back the blocks are the same.",
)
def differences(draw, *, vit=("gelu", "pre"), results=None):
    x = draw.normal(5, 8)
    reference = block(*ORIGINAL).requires_grad_(False)

    def like_reference(activation: str, order: str) -> Tensor:
        other = block(activation, order)
        other.load_state_dict(reference.state_dict())
        return other(x).detach()

    activation, order = vit
    swapped = float((like_reference(activation, "post") - reference(x)).abs().max())
    yield at_least("a block with GELU against one with ReLU, equal weights", swapped, 1e-4)
    places = LearnedPositions(5, 8).double()(x).detach(), SinusoidalPositions(8)(x)
    yield at_least("learned against sinusoidal positions", float((places[0] - places[1]).abs().max()), 1e-2)
    yield same(
        "ViT's block with ReLU against the original's",
        like_reference("relu", order),
        reference(x),
        role="detail",
    )
    yield same(
        "the same with its norms behind", like_reference("relu", "post"), reference(x), role="corrected"
    )
    if draw.first:
        study = judged("vit", draw.runs) if results is None else results
        test = {
            net: study.of(net=net, share=100)()("test") for net in ("vit", "vit, relu", "vit, sinusoidal")
        }
        yield note("judged", study.about)
        yield note("accuracy, ReLU less GELU, points", test["vit, relu"] - test["vit"])
        yield note(
            "accuracy, sinusoidal less learned positions, points", test["vit, sinusoidal"] - test["vit"]
        )
