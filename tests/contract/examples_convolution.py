"""Convolutions, attention in their place, and the nets built of them."""

from __future__ import annotations

import torch

from heedful.models import ConvNet, PlainNet, ResNet, UNet
from heedful.nn import Conv1d, Conv2d, RelativeAttention, RelativeAttention2d, RelativeMaxPool
from heedful.nn.convolution import MODES

from .example import Example


def sequence(dtype):
    return (torch.randn(3, 4, 9, dtype=dtype),)


def images(size):
    return lambda dtype: (torch.randn(3, 3, size, size, dtype=dtype),)


EXAMPLES = [
    *(
        Example(f"Conv1d, {mode}", lambda mode=mode: Conv1d(4, 5, 3, mode=mode), sequence, (3, 5, 9))
        for mode in MODES
    ),
    *(
        Example(
            f"Conv2d, full, {mode}",
            lambda mode=mode: Conv2d(3, 5, 3, stride=2, padding="full", mode=mode),
            images(8),
            (3, 5, 5, 5),
        )
        for mode in MODES
    ),
    Example("Conv2d of even size", lambda: Conv2d(3, 6, 4, groups=3), images(8), (3, 6, 8, 8)),
    Example(
        "relative attention", lambda: RelativeAttention(4, 5, 3, heads=2, dilation=2), sequence, (3, 5, 9)
    ),
    Example(
        "relative attention, by content too",
        lambda: RelativeAttention(4, 5, 3, heads=2, content=4, stride=2),
        sequence,
        (3, 5, 5),
    ),
    Example(
        "relative attention in the plane",
        lambda: RelativeAttention2d(3, 5, 3, heads=2, stride=2, padding="full", mode="circular"),
        images(8),
        (3, 5, 5, 5),
    ),
    Example(
        "relative attention in the plane, by content too",
        lambda: RelativeAttention2d(3, 5, 3, heads=2, content=4),
        images(6),
        (3, 5, 6, 6),
    ),
    Example("max-pooling by attention", lambda: RelativeMaxPool(3, padding=1), sequence, (3, 4, 3)),
    Example("softmax-pooling", lambda: RelativeMaxPool(3, beta=2.0), sequence, (3, 4, 3)),
    Example("Net1, circular", lambda: ConvNet.net1("circular"), images(32), (3, 2)),
    Example("Net2, valid", lambda: ConvNet.net2("valid"), images(32), (3, 2)),
    Example("Net1 of attention", lambda: ConvNet.net1("same", layer="attention"), images(16), (3, 2)),
    Example("rotation net", lambda: ConvNet.rotation(size=16), images(16), (3, 10)),
    Example("ConvNet", lambda: ConvNet(3, 4, widths=[4, 8], mode="reflect"), images(8), (3, 4)),
    Example("ResNet", lambda: ResNet(8, widths=[4, 8, 16]), images(8), (3, 10)),
    Example(
        "ResNet, B", lambda: ResNet(8, widths=[4, 8, 16], shortcut="B", norm="group"), images(8), (3, 10)
    ),
    Example(
        "PlainNet", lambda: PlainNet(8, widths=[4, 8, 16], norm="none", init="xavier"), images(8), (3, 10)
    ),
    Example("UNet", lambda: UNet(3, 2, widths=[4, 8, 16]), images(16), (3, 2, 16, 16)),
    Example(
        "UNet, valid, no skips",
        lambda: UNet(3, 2, widths=[4, 8], skips=False, padding="valid", norm="instance"),
        images(24),
        (3, 2, 8, 8),
    ),
]
