"""Images as sequences of patches, and back."""

from __future__ import annotations

from torch import Tensor, nn


def patchify(images: Tensor, patch: int | tuple[int, int]) -> Tensor:
    """(..., channels, height, width) → (..., patches, channels·patch·patch), patches row by row.

    >>> import torch, heedful
    >>> patches = heedful.nn.patchify(torch.randn(2, 3, 32, 32), 8)
    >>> patches.shape
    torch.Size([2, 16, 192])
    """
    tall, wide = _pair("patchify", "patch", patch)
    if images.dim() < 3:
        raise ValueError(
            f"patchify(): images have shape {tuple(images.shape)}; takes (..., channels, height, width)."
        )
    *lead, channels, height, width = images.shape
    if height % tall or width % wide:
        raise ValueError(
            f"patchify(): images are {height}×{width}, patches {tall}×{wide}; the first must be a multiple."
        )
    rows, columns = height // tall, width // wide
    split = images.reshape(*lead, channels, rows, tall, columns, wide)
    n = len(lead)
    order = [*range(n), n + 1, n + 3, n, n + 2, n + 4]  # rows, columns, channels, tall, wide
    return split.permute(order).reshape(*lead, rows * columns, channels * tall * wide)


def unpatchify(patches: Tensor, image_size: int | tuple[int, int], patch: int | tuple[int, int]) -> Tensor:
    """The images `patchify` cut up, (..., channels, height, width).

    >>> import torch, heedful
    >>> images = torch.randn(2, 3, 32, 32)
    >>> torch.equal(heedful.nn.unpatchify(heedful.nn.patchify(images, 8), 32, 8), images)
    True
    """
    tall, wide = _pair("unpatchify", "patch", patch)
    height, width = _pair("unpatchify", "image_size", image_size)
    rows, columns = height // tall, width // wide
    *lead, count, size = patches.shape
    if count != rows * columns or size % (tall * wide):
        raise ValueError(
            f"unpatchify(): got {count} patches of {size} numbers; images of {height}×{width} have "
            f"{rows * columns} patches of channels·{tall}·{wide}."
        )
    n = len(lead)
    split = patches.reshape(*lead, rows, columns, size // (tall * wide), tall, wide)
    order = [*range(n), n + 2, n, n + 3, n + 1, n + 4]  # channels, rows, tall, columns, wide
    return split.permute(order).reshape(*lead, size // (tall * wide), height, width)


class PatchEmbed(nn.Module):
    """x_p = W·vec(patch p) + b: each patch of an image becomes a token, as by a convolution of that stride.

    >>> import torch, heedful
    >>> embed = heedful.nn.PatchEmbed(image_size=32, patch=4, channels=3, dim=64)
    >>> embed(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 64, 64])
    >>> embed.count, embed.grid
    (64, (8, 8))
    """

    def __init__(
        self,
        image_size: int | tuple[int, int],
        patch: int | tuple[int, int],
        channels: int,
        dim: int,
        *,
        bias: bool = True,
    ):
        super().__init__()
        (height, width), (tall, wide) = (
            _pair("PatchEmbed", "image_size", image_size),
            _pair("PatchEmbed", "patch", patch),
        )
        if height % tall or width % wide:
            raise ValueError(
                f"PatchEmbed: image_size={image_size} is not a multiple of patch={patch}; "
                f"patches would stick out."
            )
        self.image_size, self.patch, self.channels = (height, width), (tall, wide), channels
        self.project = nn.Linear(channels * tall * wide, dim, bias=bias)

    @property
    def grid(self) -> tuple[int, int]:
        """How many patches lie below and beside each other."""
        return self.image_size[0] // self.patch[0], self.image_size[1] // self.patch[1]

    @property
    def count(self) -> int:
        """How many patches an image has."""
        return self.grid[0] * self.grid[1]

    def forward(self, images: Tensor) -> Tensor:
        """(..., channels, height, width) → (..., patches, dim)."""
        if tuple(images.shape[-3:]) != (self.channels, *self.image_size):
            raise ValueError(
                f"PatchEmbed: got images of shape {tuple(images.shape)}; takes (..., {self.channels}, "
                f"{self.image_size[0]}, {self.image_size[1]})."
            )
        return self.project(patchify(images, self.patch))

    def extra_repr(self) -> str:
        return f"image_size={self.image_size}, patch={self.patch}, channels={self.channels}"


def _pair(what: str, name: str, size: int | tuple[int, int]) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or not all(isinstance(extent, int) and extent >= 1 for extent in pair):
        raise ValueError(f"{what}({name}={size!r}): takes a whole number, or two (height, width), 1 or more.")
    return pair
