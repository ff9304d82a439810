"""ViT: an image is a sequence of patches, and a transformer listens to it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention.neighbors import Neighbors
from ..attention.similarity import Similarity
from ..nn import Attention, Dropout, PatchEmbed, SinusoidalPositions, TransformerBlock, patchify
from ..nn.checks import check_choice, check_count, check_share
from ..nn.transformer import Activation, Norm, make_norm
from .maps import attention_maps
from .model import Model

Size = int | tuple[int, int]
POSITIONS = ("learned", "sinusoidal", "none")
POOLS = ("class", "mean")


class GridPositions(nn.Module):
    """x_p + p_(r,c) for the patch p in row r and column c of a grid.

    "learned": a row of numbers for each patch. "sinusoidal": sines and cosines of r in the first half of the
    coordinates, of c in the second. "none" adds nothing. Tokens before the patches (`extra`, a class token)
    have learned positions, too, or none.
    """

    def __init__(self, kind: str, grid: tuple[int, int], dim: int, *, extra: int = 0):
        super().__init__()
        check_choice("GridPositions", "kind", kind, POSITIONS)
        self.kind, self.grid, self.extra = kind, grid, extra
        if kind == "sinusoidal" and dim % 4:
            raise ValueError(f"GridPositions(dim={dim}): rows and columns take pairs; use a multiple of 4.")
        self.waves = SinusoidalPositions(dim // 2) if kind == "sinusoidal" else None
        self.register_parameter("weight", None)
        if kind == "learned":
            self.weight = nn.Parameter(0.02 * torch.randn(extra + grid[0] * grid[1], dim))

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """x (..., extra + patches, dim), of all patches or those with the indices `visible` (..., some)."""
        table = self.table(x)
        if table is None:
            return x
        if visible is None:
            return x + table
        before = table[: self.extra].expand(*visible.shape[:-1], -1, -1)
        return x + torch.cat([before, table[self.extra + visible]], -2)

    def table(self, like: Tensor) -> Tensor | None:
        """p, (extra + patches, dim)."""
        if self.waves is None:
            return self.weight
        (rows, columns), half = self.grid, like.shape[-1] // 2
        down, along = (self.waves(like.new_zeros(length, half)) for length in (rows, columns))
        both = torch.cat([down[:, None].expand(-1, columns, -1), along.expand(rows, -1, -1)], -1)
        return F.pad(both.flatten(0, 1), (0, 0, self.extra, 0))

    def extra_repr(self) -> str:
        return f"{self.kind}, {self.grid[0]} × {self.grid[1]}"


class ViT(Model):
    r"""logits = W pool(norm(h_L)),   h_l = block_l(h_{l−1}),   h_0 = [class; E patches] + positions

    Args:
        image_size, patch: whole numbers, or (height, width) of an image and of a patch.
        channels, classes: of the images, and to tell apart; without classes it returns what it would pool.
        layers, heads, dim: how deep, how many ways to listen, how wide.
        pool: "class" reads the answer from a token of its own, "mean" from the mean over patches.
        position: "learned", "sinusoidal" (of rows and of columns) or "none".
        hidden, activation, norm, eps, bias: as in `TransformerBlock`.
        similarity, neighbors: as in `Attention`; with pool="class" the class token comes first.
        dropout: of tokens, of attention weights and of what each branch adds.

    `ViT.of_size("base")` is ViT-B/16. `resized` makes one for images of another size, `attention_maps` shows
    who listens to whom.

    >>> import torch
    >>> from heedful.models import ViT
    >>> vit = ViT(image_size=32, patch=4, channels=3, classes=10, layers=2, heads=4, dim=64)
    >>> images = torch.randn(5, 3, 32, 32)
    >>> vit(images).shape
    torch.Size([5, 10])
    >>> vit.attention_maps(images).shape                     # layers, images, heads, tokens, tokens
    torch.Size([2, 5, 4, 65, 65])
    """

    sizes: ClassVar[dict[str, dict[str, int]]] = {
        "tiny": {"layers": 12, "heads": 3, "dim": 192},
        "small": {"layers": 12, "heads": 6, "dim": 384},
        "base": {"layers": 12, "heads": 12, "dim": 768},
        "large": {"layers": 24, "heads": 16, "dim": 1024},
    }

    def __init__(
        self,
        image_size: Size,
        patch: Size,
        channels: int,
        classes: int | None,
        *,
        layers: int = 6,
        heads: int = 3,
        dim: int = 192,
        hidden: int | None = None,
        pool: Literal["class", "mean"] = "class",
        position: Literal["learned", "sinusoidal", "none"] = "learned",
        activation: Activation = "gelu",
        norm: Norm = "layer",
        similarity: Similarity | str = "softmax",
        neighbors: Neighbors | str = "everyone",
        dropout: float = 0.0,
        bias: bool = True,
        eps: float = 1e-6,
    ):
        super().__init__()
        check_count("ViT", channels=channels, layers=layers, heads=heads, dim=dim)
        check_choice("ViT", "pool", pool, POOLS)
        check_choice("ViT", "position", position, POSITIONS)
        check_share("ViT", dropout=dropout)
        self.pool = pool
        self.patches = PatchEmbed(image_size, patch, channels, dim)
        self.token = nn.Parameter(0.02 * torch.randn(dim)) if pool == "class" else None
        self.positions = GridPositions(position, self.patches.grid, dim, extra=self.extra)
        self.dropout = Dropout(dropout)
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(
                dim,
                heads,
                hidden=hidden,
                activation=activation,
                norm=norm,
                eps=eps,
                dropout=dropout,
                bias=bias,
                similarity=similarity,
                neighbors=neighbors,
            )
            for _ in range(layers)
        )
        self.norm = make_norm(norm, dim, eps)
        self.head = None if classes is None else nn.Linear(dim, classes)
        reset_parameters(self)
        if self.head is not None:
            nn.init.normal_(self.head.weight, std=0.02)

    @classmethod
    def of_size(
        cls,
        size: str,
        image_size: Size = 224,
        patch: Size = 16,
        channels: int = 3,
        classes: int | None = 1000,
        **changes,
    ) -> ViT:
        """One of the known sizes: "tiny", "small", "base", "large".

        >>> ViT.of_size("tiny", image_size=32, patch=4, classes=10).parameter_count
        5362762
        """
        check_choice("ViT.of_size", "size", size, cls.sizes)
        settings: dict[str, Any] = {**cls.sizes[size], **changes}
        return cls(image_size, patch, channels, classes, **settings)

    @property
    def extra(self) -> int:
        """How many tokens come before the patches."""
        return int(self.token is not None)

    def forward(self, images: Tensor) -> Tensor:
        """Logits (..., classes) of images (..., channels, height, width)."""
        pooled = self.features(images)
        return pooled if self.head is None else self.head(pooled)

    def features(self, images: Tensor) -> Tensor:
        """What the logits are read from, (..., dim)."""
        x = self.encode(images)
        return x[..., 0, :] if self.pool == "class" else x.mean(-2)

    def encode(self, images: Tensor, visible: Tensor | None = None) -> Tensor:
        """The tokens after the last block, (..., tokens, dim).

        It looks at all patches, or at those with the indices `visible` (..., some): no pixel of the others is
        read.
        """
        x = self.embed(images, visible)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def attention_maps(self, images: Tensor) -> Tensor:
        """How much token i heeds token j, (layers, ..., heads, tokens, tokens); without their dropout."""
        return attention_maps(self.blocks, self.embed(images))

    def resized(self, image_size: Size) -> ViT:
        """The same model for images of another size: learned positions are stretched, the rest is copied."""
        with torch.random.fork_rng(devices=[]):
            twin = type(self)(**{**self.config, "image_size": image_size})
        weights = self.state_dict()
        if self.positions.weight is not None:
            weights["positions.weight"] = _interpolated(self.positions, twin.positions)
        twin.to(self.patches.project.weight).load_state_dict(weights)
        return twin.train(self.training)

    def embed(self, images: Tensor, visible: Tensor | None = None) -> Tensor:
        """Patches as tokens, the class token first, with their positions, (..., tokens, dim)."""
        self.check(images)
        if visible is None:
            x = self.patches(images)
        else:
            x = self.patches.project(pick(patchify(images, self.patches.patch), visible))
        if self.token is not None:
            x = torch.cat([self.token.expand(*x.shape[:-2], 1, -1), x], -2)
        return self.dropout(self.positions(x, visible))

    def check(self, images: Tensor) -> None:
        wanted = (self.patches.channels, *self.patches.image_size)
        if tuple(images.shape[-3:]) != wanted:
            raise ValueError(
                f"{type(self).__name__}: got images of shape {tuple(images.shape)}; takes (..., channels, "
                f"height, width) = (..., {', '.join(map(str, wanted))}). `resized` makes one for others."
            )


def pick(patches: Tensor, visible: Tensor) -> Tensor:
    """The patches (..., some, width) at the indices (..., some)."""
    return patches.gather(-2, visible[..., None].expand(*visible.shape, patches.shape[-1]))


@torch.no_grad()
def reset_parameters(model: nn.Module) -> None:
    """Glorot's uniform weights, those of queries, keys and values each by itself; biases zero."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in model.modules():
        if isinstance(module, Attention):
            for part in module.query_key_value.weight.chunk(3):
                nn.init.xavier_uniform_(part)


def _interpolated(old: GridPositions, new: GridPositions) -> Tensor:
    """Learned positions (extra + patches, dim) of one grid, stretched to another."""
    weight = old.weight.detach()
    kept, grid = weight.split([old.extra, len(weight) - old.extra])
    picture = grid.unflatten(0, old.grid).permute(2, 0, 1)[None].float()  # (1, dim, rows, columns)
    stretched = F.interpolate(picture, new.grid, mode="bicubic", align_corners=False)
    return torch.cat([kept, stretched[0].flatten(1).mT.to(weight.dtype)])
