"""A plain convolutional net: the two of the padding study, the one of the rotation study, or your own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor, nn

from ..nn import Conv2d, Occupied, RelativeAttention2d
from ..nn.checks import check_choice, check_count
from .model import Model

HEADS = ("max", "mean", "flatten")
LAYERS = ("convolution", "attention")

# The paddings the study compares: how far a 3 × 3 kernel looks past the edge, and what it sees there.
PADDINGS: dict[str, dict[str, Any]] = {
    "valid": {"padding": "valid"},
    "same": {"padding": "same"},
    "full": {"padding": "full"},
    "circular": {"padding": "full", "mode": "circular"},
    "reflect": {"padding": "full", "mode": "reflect"},
    "replicate": {"padding": "full", "mode": "replicate"},
}


class ConvNet(Model):
    r"""logits = W pool(x_L) + c,   x_l = relu(w_l ∗ x_{l−1} + b_l), max-pooled by two if `halve`

    Args:
        channels, classes: of the images, and to tell apart.
        widths: channels after each convolution; `strides` is one number for all, or one each.
        kernel, padding, mode, bias: of every convolution, as in `Conv2d`.
        head: "max" or "mean" over all places, which forgets where, or "flatten", which does not.
        hidden: width of a linear layer before the last, if there is to be one; `hidden_relu` puts a ReLU
            behind it.
        size: height and width of the images, or one number for both; only "flatten" needs it.
        layer: "attention" puts relative attention over the same places, in four heads that compare eight
            features, where the convolutions are.

    `ConvNet.net1`, `ConvNet.net2` and `ConvNet.rotation` are the nets of the studies.

    >>> import torch
    >>> from heedful.models import ConvNet
    >>> ConvNet.net1(padding="circular")(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 2])
    >>> ConvNet.net1().parameter_count, ConvNet.rotation().parameter_count
    (65506, 122570)
    """

    def __init__(
        self,
        channels: int = 3,
        classes: int = 10,
        *,
        widths: Sequence[int] = (32, 64, 64),
        strides: int | Sequence[int] = 1,
        kernel: int = 3,
        padding: str | int = "same",
        mode: str = "zeros",
        bias: bool = True,
        halve: bool = True,
        head: Literal["max", "mean", "flatten"] = "mean",
        hidden: int | None = None,
        hidden_relu: bool = True,
        size: int | Sequence[int] | None = None,
        layer: Literal["convolution", "attention"] = "convolution",
    ):
        super().__init__()
        check_choice("ConvNet", "layer", layer, LAYERS)
        check_count("ConvNet", channels=channels, classes=classes, widths=len(widths))
        check_choice("ConvNet", "head", head, HEADS)
        strides = [strides] * len(widths) if isinstance(strides, int) else list(strides)
        if len(strides) != len(widths):
            raise ValueError(f"ConvNet: got {len(strides)} strides for {len(widths)} widths; give one each.")
        self.pool, self.size = head, None if size is None else _pair(size)
        self.features = nn.Sequential()
        for inputs, outputs, stride in zip([channels, *widths], widths, strides, strict=False):
            options: Any = {"stride": stride, "padding": padding, "mode": mode, "bias": bias}
            if layer == "attention":
                self.features.append(
                    RelativeAttention2d(inputs, outputs, kernel, heads=4, content=8, **options)
                )
            else:
                self.features.append(Conv2d(inputs, outputs, kernel, **options))
            self.features.append(nn.ReLU())
            if halve:
                self.features.append(nn.MaxPool2d(2))
        width = widths[-1] * (self._places() if head == "flatten" else 1)
        self.head = nn.Sequential()
        if hidden is not None:
            self.head.append(nn.Linear(width, hidden))
            if hidden_relu:
                self.head.append(nn.ReLU())
        self.head.append(nn.Linear(width if hidden is None else hidden, classes))

    @classmethod
    def net1(cls, padding: str = "same", **options: Any) -> ConvNet:
        """Convolutions, then the maximum over all places: it can know position only through the padding."""
        return cls._study(padding, head="max", **options)

    @classmethod
    def net2(cls, padding: str = "same", **options: Any) -> ConvNet:
        """Convolutions, then all places side by side: it knows position anyway."""
        return cls._study(padding, head="flatten", hidden=64, hidden_relu=False, size=32, **options)

    @classmethod
    def _study(cls, padding: str, **options) -> ConvNet:
        check_choice("ConvNet", "padding", padding, PADDINGS)
        shape: Any = {"widths": [32, 32, 64, 64], "strides": [1, 2, 2, 2], "bias": False, "halve": False}
        return cls(3, 2, **shape, **PADDINGS[padding], **options)

    @classmethod
    def rotation(cls, channels: int = 3, classes: int = 10, size: int = 32) -> ConvNet:
        """Three convolutions, each halved by max-pooling, and a hidden layer."""
        return cls(channels, classes, widths=[32, 64, 64], head="flatten", hidden=64, size=size)

    def forward(self, x: Tensor | Occupied) -> Tensor:
        """Images (N, channels, H, W) → logits (N, classes).

        Images that are mostly zero may come as `Occupied(images, net.features)`.
        """
        if isinstance(x, Occupied):
            return self._answer(x.through(self.features))
        if self.pool == "flatten" and tuple(x.shape[-2:]) != self.size:
            raise ValueError(
                f"ConvNet(size={self.size}): got images of {tuple(x.shape)}; it takes that size only."
            )
        return self._answer(self.features(x))

    def _answer(self, x: Tensor) -> Tensor:
        pooled = {
            "max": lambda: x.amax((2, 3)),
            "mean": lambda: x.mean((2, 3)),
            "flatten": lambda: x.flatten(1),
        }
        return self.head(pooled[self.pool]())

    def _places(self) -> int:
        """How many places are left of an image after the convolutions."""
        if self.size is None:
            raise ValueError('ConvNet(head="flatten"): say how large the images are, size=….')
        extent = list(self.size)
        for layer in self.features:
            for side in (0, 1):
                if isinstance(layer, Conv2d):
                    inner = extent[side] + sum(layer.pads[side]) - layer.kernel_size[side]
                    extent[side] = inner // layer.stride[side] + 1
                elif isinstance(layer, RelativeAttention2d):
                    inner = extent[side] + sum(layer.pads[side]) - layer.kernel
                    extent[side] = inner // layer.stride + 1
                elif isinstance(layer, nn.MaxPool2d):
                    extent[side] //= 2
            if min(extent) < 1:
                raise ValueError(f"ConvNet(size={self.size}): nothing is left of the images behind {layer}.")
        return extent[0] * extent[1]


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2:
        raise ValueError(f"ConvNet(size={size!r}): takes one number, or height and width.")
    check_count("ConvNet", size=pair[0])
    check_count("ConvNet", size=pair[1])
    return pair
