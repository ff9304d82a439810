"""U-Net: down to what is there, up again to where it is; with skips across, or without, to compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..nn import Conv2d
from ..nn.checks import check_choice, check_count
from ..nn.norms import CHANNEL_NORMS, channel_norm
from .model import Model

PADDINGS = ("same", "valid")


class UNet(Model):
    r"""down_l = conv²(pool(down_{l−1})),   up_l = conv²([down_l, T up_{l+1}]),   logits = W up_0 + b

    conv² is (3 × 3 convolution, norm, ReLU) twice, T a transposed 2 × 2 convolution that doubles the image.

    Args:
        channels, classes: of the images, and of the logits at every pixel.
        widths: channels at each level, from the full image down; each level is half as large.
        skips: without them up_l = conv²(T up_{l+1}). Half the inputs of its first convolution are then gone;
            to keep the number of weights, the channels between its two convolutions are half as many again
            (w → 1.5 w → w has the 27 w² weights of 2 w → w → w).
        padding: "same" returns logits for every pixel; "valid", the original form, only for those whose
            surroundings are all in the image: `margin` pixels less on each side.
        norm: "batch", "instance", "group", "layer" or "none".

    `predict` takes images of any size.

    >>> import torch
    >>> from heedful.models import UNet
    >>> unet = UNet(1, 2, widths=[8, 16, 32])
    >>> unet(torch.randn(1, 1, 64, 64)).shape, unet.predict(torch.randn(1, 75, 50)).shape
    (torch.Size([1, 2, 64, 64]), torch.Size([2, 75, 50]))
    >>> original = UNet(1, 2, widths=[64, 128, 256, 512, 1024], padding="valid", norm="none")
    >>> original.margin, original.parameter_count
    (92, 31030658)
    """

    def __init__(
        self,
        channels: int = 1,
        classes: int = 2,
        *,
        widths: Sequence[int] = (32, 64, 128, 256, 512),
        skips: bool = True,
        padding: Literal["same", "valid"] = "same",
        norm: str = "batch",
    ):
        super().__init__()
        check_count("UNet", channels=channels, classes=classes)
        check_count("UNet", widths=len(widths), least=2)
        check_choice("UNet", "padding", padding, PADDINGS)
        check_choice("UNet", "norm", norm, CHANNEL_NORMS)
        self.channels, self.skips, self.padding = channels, skips, padding
        self.scale = 2 ** (len(widths) - 1)  # of the lowest level
        pairs = list(zip([channels, *widths], widths, strict=False))
        self.down = nn.ModuleList(_twice(inputs, width, width, padding, norm) for inputs, width in pairs)
        rising = list(zip(widths[:0:-1], widths[-2::-1], strict=True))  # (1024, 512), (512, 256), …
        self.rise = nn.ModuleList(nn.ConvTranspose2d(inputs, width, 2, stride=2) for inputs, width in rising)
        self.up = nn.ModuleList(
            _twice(2 * width, width, width, padding, norm)
            if skips
            else _twice(width, width + width // 2, width, padding, norm)
            for _, width in rising
        )
        self.head = nn.Conv2d(widths[0], classes, 1)
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.kaiming_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    @property
    def margin(self) -> int:
        """How many pixels of each side get no logits: each convolution takes one, at its level's scale."""
        return 6 * self.scale - 4 if self.padding == "valid" else 0

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, channels, H, W) → logits (N, classes, H − 2·margin, W − 2·margin)."""
        self._check(x)
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for rise, block, skip in zip(self.rise, self.up, reversed(kept[:-1]), strict=True):
            x = rise(x)
            x = block(torch.cat([_middle(skip, x), x], 1) if self.skips else x)
        return self.head(x)

    @torch.no_grad()
    def predict(self, images: Tensor, *, tile: int | None = None) -> Tensor:
        """Logits for every pixel of images of any size, (N, channels, H, W) or (channels, H, W), evaluating.

        Beyond their edges images are mirrored. With `tile` it goes by pieces of about `tile` × `tile` logits,
        in little memory: each is seen with all that its logits can hear of, so they join without a seam to
        what one pass gives, unless the norm averages over places, which are other ones in every tile.
        """
        if images.dim() == 3:
            return self.predict(images[None], tile=tile)[0]
        training = self.training
        self.eval()
        try:
            return self._stitched(images, tile)
        finally:
            self.train(training)

    def _stitched(self, images: Tensor, tile: int | None) -> Tensor:
        height, width = images.shape[-2:]
        if tile is not None:
            check_count("UNet.predict", tile=tile)
        rows = []
        for top, start, stop, down in self._windows(height, tile):
            strip, row = _mirrored(images, -2, start, stop), []
            for left, start, stop, right in self._windows(width, tile):
                out = self(_mirrored(strip, -1, start, stop))
                row.append(out[..., top : top + down, left : left + right])
            rows.append(torch.cat(row, -1))
        return torch.cat(rows, -2)

    def _windows(self, extent: int, tile: int | None) -> Iterator[tuple[int, int, int, int]]:
        """Where in its logits a tile's own begin, what it sees, from where to where, and how many it gives.

        Tiles begin at multiples of the scale, so that pooling sees the same pairs of pixels in each.
        """
        side = self.fitting(extent if tile is None else max(tile, self.scale))
        step = extent if tile is None else side - side % self.scale
        for first in range(0, extent, step):
            own = min(step, extent - first)
            if self.padding == "valid":
                yield 0, first - self.margin, first + side + self.margin, own
            else:  # a convolution that pads must see the image's edge where it is, and no other
                reach, end = 6 * self.scale, self.fitting(extent)
                start, stop = max(0, first - reach), min(end, first + step + reach)
                yield first - start, start, stop, own

    def fitting(self, least: int) -> int:
        """The smallest number of logits on a side that is `least` or more and that the levels can make."""
        rest = 4 % self.scale if self.padding == "valid" else 0
        return least + (rest - least) % self.scale

    def _check(self, x: Tensor) -> None:
        if x.dim() != 4 or x.shape[1] != self.channels:
            raise ValueError(f"UNet: got images of shape {tuple(x.shape)}; takes (N, {self.channels}, H, W).")
        for extent in x.shape[-2:]:
            fits = self.fitting(max(1, extent - 2 * self.margin)) + 2 * self.margin
            if extent != fits:
                raise ValueError(
                    f"UNet: an image of {x.shape[-2]} × {x.shape[-1]} does not halve {len(self.rise)} times; "
                    f"make {extent} {fits}, or use `predict`, which takes any size."
                )


def _twice(inputs: int, between: int, outputs: int, padding: str, norm: str) -> nn.Sequential:
    bias = norm == "none"  # a norm brings a bias of its own
    return nn.Sequential(
        Conv2d(inputs, between, 3, padding=padding, bias=bias),
        channel_norm(norm, between),
        nn.ReLU(),
        Conv2d(between, outputs, 3, padding=padding, bias=bias),
        channel_norm(norm, outputs),
        nn.ReLU(),
    )


def _middle(x: Tensor, like: Tensor) -> Tensor:
    """The middle of x, as large as another."""
    top, left = ((x.shape[side] - like.shape[side]) // 2 for side in (-2, -1))
    return x[..., top : top + like.shape[-2], left : left + like.shape[-1]]


def _mirrored(x: Tensor, dim: int, start: int, stop: int) -> Tensor:
    """x from start to stop along a dimension, mirrored at its edges as often as it takes."""
    last = x.shape[dim] - 1
    if start >= 0 and stop <= last + 1:
        return x.narrow(dim, start, stop - start)
    at = torch.arange(start, stop, device=x.device) % max(1, 2 * last)
    return x.index_select(dim, torch.minimum(at, 2 * last - at))
