"""A masked autoencoder: hide most of an image, and learn by filling it in."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..attention.similarity import Similarity
from ..kernels.dropout import numbers
from ..nn import TransformerBlock, patchify, unpatchify
from ..nn.checks import check_count, check_share
from ..nn.transformer import Activation, Norm, make_norm
from .model import Model
from .vit import GridPositions, Size, ViT, reset_parameters


class MaskedAutoencoder(Model):
    r"""x̂ = decoder(encoder(x_visible), mask tokens),   loss = mean over hidden patches p of |x̂_p − x_p|²

    The encoder is a ViT that is shown the visible patches only; the decoder, narrower and shallower, gets
    what it made of them, and the same learned token in every hidden place.

    Args:
        image_size, patch, channels: as in `ViT`.
        layers, heads, dim: of the encoder; `decoder_layers`, `decoder_heads`, `decoder_dim` of the decoder.
        masked: the share of patches that is hidden.
        normalize: predict each patch less its mean, over its standard deviation.
        position, hidden, activation, norm, similarity, dropout, bias, eps: as in `ViT`.

    What is hidden is drawn anew at every call in training, and is the same at every call in eval mode; `seed`
    or `mask` decide it otherwise.

    >>> import torch
    >>> from heedful.models import MaskedAutoencoder
    >>> model = MaskedAutoencoder(32, patch=4, layers=2, heads=4, dim=64, decoder_dim=32, decoder_heads=2)
    >>> images = torch.rand(5, 3, 32, 32)
    >>> predicted, mask = model(images)                      # mask: (5, 64), True where hidden
    >>> predicted.shape, mask.sum(-1)
    (torch.Size([5, 3, 32, 32]), tensor([48, 48, 48, 48, 48]))
    >>> model.loss(images).backward()
    >>> classifier = model.classifier(classes=10)            # a ViT that begins where this one is
    >>> classifier(images).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        image_size: Size = 32,
        patch: Size = 4,
        channels: int = 3,
        *,
        layers: int = 6,
        heads: int = 3,
        dim: int = 192,
        decoder_layers: int = 2,
        decoder_heads: int = 3,
        decoder_dim: int = 96,
        masked: float = 0.75,
        normalize: bool = True,
        position: Literal["learned", "sinusoidal", "none"] = "sinusoidal",
        hidden: int | None = None,
        activation: Activation = "gelu",
        norm: Norm = "layer",
        similarity: Similarity | str = "softmax",
        dropout: float = 0.0,
        bias: bool = True,
        eps: float = 1e-6,
    ):
        super().__init__()
        check_count(
            "MaskedAutoencoder",
            decoder_layers=decoder_layers,
            decoder_heads=decoder_heads,
            decoder_dim=decoder_dim,
        )
        check_share("MaskedAutoencoder", masked=masked)
        shared: dict[str, Any] = {
            "activation": activation,
            "norm": norm,
            "similarity": similarity,
            "dropout": dropout,
            "bias": bias,
            "eps": eps,
        }
        self.encoder = ViT(
            image_size,
            patch,
            channels,
            None,
            layers=layers,
            heads=heads,
            dim=dim,
            hidden=hidden,
            pool="mean",
            position=position,
            **shared,
        )
        count = self.encoder.patches.count
        self.hidden_patches = round(masked * count)
        if not 0 < self.hidden_patches < count:
            raise ValueError(
                f"MaskedAutoencoder(masked={masked}): hides {self.hidden_patches} of {count} patches; "
                f"it must hide one and show one."
            )
        self.normalize = normalize
        self.narrow = nn.Linear(dim, decoder_dim, bias=bias)
        self.token = nn.Parameter(0.02 * torch.randn(decoder_dim))
        self.positions = GridPositions(position, self.encoder.patches.grid, decoder_dim)
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(decoder_dim, decoder_heads, **shared) for _ in range(decoder_layers)
        )
        self.norm = make_norm(norm, decoder_dim, eps)
        self.predict = nn.Linear(decoder_dim, self.encoder.patches.project.in_features)
        reset_parameters(self)

    def forward(
        self, images: Tensor, mask: Tensor | None = None, seed: int | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """What it takes the images to be, (..., channels, height, width), and the mask, True where hidden.

        With `normalize` each patch is in units of its own mean and deviation: see `reconstruct` for pictures.

        Args:
            images: (..., channels, height, width).
            mask: (..., patches) or (patches,), as many True in each row.
            seed: decides the mask, whatever the device; image i of a batch has the same whatever the others.
        """
        mask, visible = self._hide(images, mask, seed)
        return self._images(self._decode(self.encoder.encode(images, visible), visible)), mask

    def loss(self, images: Tensor, mask: Tensor | None = None, seed: int | Tensor | None = None) -> Tensor:
        """The mean squared error over the hidden patches."""
        mask, visible = self._hide(images, mask, seed)
        predicted = self._decode(self.encoder.encode(images, visible), visible)
        error = (predicted - self._target(images)).square().mean(-1)
        return (error * mask).sum() / mask.sum()

    def reconstruct(
        self, images: Tensor, mask: Tensor | None = None, seed: int | Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """A picture to look at, and the mask: visible patches as they are, hidden ones as predicted.

        With `normalize` a hidden patch gets its true mean and deviation back, which the model did not know.
        """
        mask, visible = self._hide(images, mask, seed)
        predicted = self._decode(self.encoder.encode(images, visible), visible)
        patches = patchify(images, self.encoder.patches.patch)
        if self.normalize:
            mean, deviation = _moments(patches)
            predicted = predicted * deviation + mean
        return self._images(torch.where(mask[..., None], predicted, patches)), mask

    def encode(self, images: Tensor) -> Tensor:
        """The encoder's tokens with nothing hidden, (..., patches, dim)."""
        return self.encoder.encode(images)

    def features(self, images: Tensor) -> Tensor:
        """Their mean, (..., dim): what a linear probe reads."""
        return self.encoder.features(images)

    def classifier(self, classes: int, **changes) -> ViT:
        """A ViT with a copy of the encoder's weights and a fresh head; `changes`, such as dropout, to it."""
        model = ViT(**{**self.encoder.config, **changes, "classes": classes})
        model.load_state_dict({**model.state_dict(), **self.encoder.state_dict()})
        return model.to(self.token)

    def _decode(self, encoded: Tensor, visible: Tensor) -> Tensor:
        """Every patch as predicted, (..., patches, numbers), from the visible ones' tokens."""
        told = self.narrow(encoded)
        index = visible[..., None].expand(told.shape)
        everywhere = self.token.to(told.dtype).expand(*told.shape[:-2], self.encoder.patches.count, -1)
        x = self.positions(everywhere.scatter(-2, index, told))
        for block in self.blocks:
            x = block(x)
        return self.predict(self.norm(x))

    def _target(self, images: Tensor) -> Tensor:
        patches = patchify(images, self.encoder.patches.patch)
        if not self.normalize:
            return patches
        mean, deviation = _moments(patches)
        return (patches - mean) / deviation

    def _images(self, patches: Tensor) -> Tensor:
        return unpatchify(patches, self.encoder.patches.image_size, self.encoder.patches.patch)

    def _hide(self, images: Tensor, mask: Tensor | None, seed: int | Tensor | None) -> tuple[Tensor, Tensor]:
        """The mask (..., patches), and the indices of what it shows, (..., visible)."""
        embed, lead = self.encoder.patches, images.shape[:-3]
        self.encoder.check(images)
        if mask is None:
            return self._drawn(lead, seed, images.device)
        if seed is not None:
            raise ValueError("MaskedAutoencoder: give a mask or a seed, not both.")
        if mask.dtype != torch.bool or mask.shape not in ((*lead, embed.count), (embed.count,)):
            raise ValueError(
                f"MaskedAutoencoder: mask is {mask.dtype} of shape {tuple(mask.shape)}; takes booleans, True "
                f"where hidden, of shape {(*lead, embed.count)} or {(embed.count,)}."
            )
        shown = (~mask).sum(-1)
        count = int(shown.flatten()[0])
        if not bool((shown == count).all()) or not 0 < count < embed.count:
            raise ValueError(
                f"MaskedAutoencoder: mask shows {sorted(set(shown.flatten().tolist()))} of {embed.count} "
                f"patches; it must show as many in each image, one at least and not all."
            )
        mask = mask.expand(*lead, -1)
        return mask, mask.to(torch.uint8).argsort(dim=-1, stable=True)[..., :count]

    def _drawn(self, lead: torch.Size, seed: int | Tensor | None, device) -> tuple[Tensor, Tensor]:
        """Seed, place of the image and patch decide a number for each patch; those with the largest hide."""
        count = self.encoder.patches.count
        if seed is None:
            most = torch.iinfo(torch.int64).max
            seed = torch.randint(most, (1,), device=device) if self.training else 0
        seed = torch.as_tensor(seed, dtype=torch.int64, device=device).reshape(1)
        image = torch.arange(lead.numel(), device=device).view(*lead, 1)
        order = numbers(seed, image, torch.arange(count, device=device)).argsort(-1)
        visible = order[..., : count - self.hidden_patches].sort(-1).values
        mask = torch.ones(*lead, count, dtype=torch.bool, device=device)
        return mask.scatter(-1, visible, False), visible


def _moments(patches: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each patch's numbers."""
    variance, mean = torch.var_mean(patches, -1, keepdim=True)
    return mean, (variance + 1e-6).sqrt()
