"""Deep nets for small images, with shortcuts and without: does depth hurt, and do shortcuts heal it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from ..nn import Conv2d
from ..nn.checks import check_choice, check_count
from ..nn.norms import CHANNEL_NORMS, channel_norm
from .model import Model

INITS = {"he": nn.init.kaiming_normal_, "xavier": nn.init.xavier_normal_}
SHORTCUTS = ("A", "B")


class Block(nn.Module):
    """y = relu(s(x) + norm(w₂ ∗ relu(norm(w₁ ∗ x)))): two convolutions beside a shortcut s, or without one.

    s is the identity where shapes agree. Where a block halves the image and widens the channels, "A" takes
    every other pixel and adds channels of zeros, "B" convolves 1 × 1; None leaves s out everywhere.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: str | None, norm: str):
        super().__init__()
        bias = norm == "none"  # a norm brings a bias of its own
        self.conv1 = Conv2d(inputs, outputs, 3, stride=stride, bias=bias)
        self.norm1 = channel_norm(norm, outputs)
        self.conv2 = Conv2d(outputs, outputs, 3, bias=bias)
        self.norm2 = channel_norm(norm, outputs)
        self.kind, self.stride, self.wider = shortcut, stride, outputs - inputs
        self.project: nn.Module | None = None
        if shortcut == "B" and (stride != 1 or self.wider):
            conv = Conv2d(inputs, outputs, 1, stride=stride, bias=bias)
            self.project = nn.Sequential(conv, channel_norm(norm, outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y if self.kind is None else self.shortcut(x) + y)

    def shortcut(self, x: Tensor) -> Tensor:
        if self.project is not None:
            return self.project(x)
        if self.stride == 1 and not self.wider:
            return x
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.wider))


class _Deep(Model):
    """A convolution; stages of n blocks, each after the first half as large; the mean over places; logits."""

    def __init__(self, depth, channels, classes, widths, shortcut, norm, init):
        super().__init__()
        where = type(self).__name__
        check_count(where, depth=depth, channels=channels, classes=classes, widths=len(widths))
        check_choice(where, "norm", norm, CHANNEL_NORMS)
        check_choice(where, "init", init, INITS)
        layers = 2 * len(widths)  # of one block a stage
        n, rest = divmod(depth - 2, layers)
        if n < 1 or rest:
            near = layers * max(1, n) + 2
            raise ValueError(
                f"{where}(depth={depth}): takes {layers}n + 2 for {len(widths)} widths, as {near}."
            )
        self.conv = Conv2d(channels, widths[0], 3, bias=norm == "none")
        self.norm = channel_norm(norm, widths[0])
        self.blocks = nn.Sequential()
        for stage, (inputs, width) in enumerate(zip([widths[0], *widths], widths, strict=False)):
            self.blocks.append(Block(inputs, width, 1 if stage == 0 else 2, shortcut, norm))
            for _ in range(n - 1):
                self.blocks.append(Block(width, width, 1, shortcut, norm))
        self.head = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                INITS[init](module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, channels, H, W) → logits (N, classes)."""
        x = F.relu(self.norm(self.conv(x)))
        return self.head(self.blocks(x).mean((2, 3)))


class ResNet(_Deep):
    """x_{l+1} = relu(s(x_l) + f_l(x_l)): the residual net of He et al. (2015) for CIFAR, 6n + 2 layers deep.

    Args:
        depth: 20, 32, 44, 56, 110, …: 6n + 2 for three widths.
        channels, classes: of the images, and to tell apart.
        widths: channels of each stage; images halve from stage to stage.
        shortcut: where shapes change, "A": subsample and pad with zeros, free of parameters, as in the
            paper's nets for CIFAR; "B": a 1 × 1 convolution.
        norm: "batch", or "instance", "group", "layer", "none".
        init: "he" (variance 2/inputs of a unit) or "xavier" (2/(inputs + outputs)).

    >>> import torch
    >>> from heedful.models import ResNet
    >>> ResNet(20)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    >>> ResNet(20).parameter_count, ResNet(56).parameter_count
    (269722, 853018)
    """

    def __init__(
        self,
        depth: int = 20,
        *,
        channels: int = 3,
        classes: int = 10,
        widths: Sequence[int] = (16, 32, 64),
        shortcut: Literal["A", "B"] = "A",
        norm: str = "batch",
        init: Literal["he", "xavier"] = "he",
    ):
        check_choice("ResNet", "shortcut", shortcut, SHORTCUTS)
        super().__init__(depth, channels, classes, widths, shortcut, norm, init)


class PlainNet(_Deep):
    """x_{l+1} = relu(f_l(x_l)): a `ResNet` without its shortcuts, which is what they are compared with.

    >>> from heedful.models import PlainNet, ResNet
    >>> PlainNet(56).parameter_count == ResNet(56).parameter_count
    True
    """

    def __init__(
        self,
        depth: int = 20,
        *,
        channels: int = 3,
        classes: int = 10,
        widths: Sequence[int] = (16, 32, 64),
        norm: str = "batch",
        init: Literal["he", "xavier"] = "he",
    ):
        super().__init__(depth, channels, classes, widths, None, norm, init)
