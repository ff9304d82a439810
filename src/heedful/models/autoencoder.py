"""Autoencoders: what a narrow passage learns to let through, of clean, noisy or half-hidden inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..nn.checks import check_choice, check_count, check_share
from .model import Model

KINDS = ("vanilla", "denoising", "masked")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "linear": lambda x: x,
}


class Autoencoder(Model):
    r"""L = (1/n) Σ_i ‖x_i − decode(encode(corrupt(x_i)))‖² + λ Σ_W ‖W‖²

    The sum is over the features of a sample, the mean over samples. The target is the clean input, whatever
    the corruption, and all of its entries count.

    Args:
        features: how many numbers a sample has; images are flattened.
        layers: widths of the encoder, the last that of the latent code; the decoder mirrors them.
        activation: between layers, not behind the code or the reconstruction: "relu", "tanh", "sigmoid", or
            "linear" for none (the best it can do then is to span the principal components).
        kind: "vanilla"; "denoising": adds N(0, noise²) to the input; "masked": zeroes entries with
            probability `mask`. Inputs are corrupted in training only.
        decay: λ, of the squares of all weight matrices (not biases).
        tied: the decoder's matrices are the encoder's, transposed.

    >>> import torch
    >>> from heedful.models import Autoencoder
    >>> model = Autoencoder(784, [256, 64], kind="denoising")
    >>> x = torch.rand(32, 1, 28, 28)
    >>> model.encode(x).shape, model(x).shape
    (torch.Size([32, 64]), torch.Size([32, 1, 28, 28]))
    >>> model.loss(x).backward()
    """

    def __init__(
        self,
        features: int,
        layers: Sequence[int],
        *,
        activation: Literal["relu", "tanh", "sigmoid", "linear"] = "relu",
        kind: Literal["vanilla", "denoising", "masked"] = "vanilla",
        noise: float = 0.5,
        mask: float = 0.25,
        decay: float = 0.0,
        tied: bool = False,
        bias: bool = True,
    ):
        super().__init__()
        check_count("Autoencoder", features=features)
        check_count("Autoencoder", layers=len(layers))
        for width in layers:
            check_count("Autoencoder", layers=width)
        check_choice("Autoencoder", "activation", activation, ACTIVATIONS)
        check_choice("Autoencoder", "kind", kind, KINDS)
        check_share("Autoencoder", mask=mask)
        for name, number in (("noise", noise), ("decay", decay)):
            if not number >= 0:
                raise ValueError(f"Autoencoder({name}={number}): takes 0 or more.")
        self.features, self.activation, self.kind = features, activation, kind
        self.noise, self.mask, self.decay, self.tied = noise, mask, decay, tied
        widths = [features, *layers]
        self.encoder: Any = nn.ModuleList(nn.Linear(a, b, bias=bias) for a, b in pairwise(widths))
        back = list(pairwise(widths[::-1]))
        self.decoder: Any
        if tied:  # biases only
            self.decoder = nn.ParameterList(torch.zeros(b) for _, b in back if bias)
        else:
            self.decoder = nn.ModuleList(nn.Linear(a, b, bias=bias) for a, b in back)

    def encode(self, x: Tensor) -> Tensor:
        """The code of each sample: (N, features) or (N, …) → (N, latent)."""
        return self._through(self._flat(x), [(layer.weight, layer.bias) for layer in self.encoder])

    def decode(self, code: Tensor) -> Tensor:
        """(N, latent) → (N, features)."""
        return self._through(code, self._decoder())

    def forward(self, x: Tensor) -> Tensor:
        """The reconstruction of x as it is, in x's shape."""
        return self.decode(self.encode(x)).view_as(x)

    def corrupt(self, x: Tensor) -> Tensor:
        """x with noise or holes, as `kind` says."""
        if self.kind == "denoising":
            return x + self.noise * torch.randn_like(x)
        if self.kind == "masked":
            return x * (torch.rand_like(x) >= self.mask)
        return x

    def loss(self, x: Tensor) -> Tensor:
        """The objective above; in eval mode of the clean input."""
        found = self(self.corrupt(x) if self.training else x)
        return (x - found).square().flatten(1).sum(1).mean() + self.penalty()

    def penalty(self) -> Tensor:
        """λ Σ_W ‖W‖², over the matrices of encoder and decoder (a shared one counts for both)."""
        matrices = [layer.weight for layer in self.encoder] + [weight for weight, _ in self._decoder()]
        return self.decay * sum(weight.square().sum() for weight in matrices)

    def _decoder(self) -> list[tuple[Tensor, Tensor | None]]:
        if not self.tied:
            return [(layer.weight, layer.bias) for layer in self.decoder]
        biases = list(self.decoder) or [None] * len(self.encoder)
        return [(layer.weight.T, b) for layer, b in zip(reversed(self.encoder), biases, strict=True)]

    def _through(self, x: Tensor, layers: list) -> Tensor:
        for number, (weight, bias) in enumerate(layers):
            x = x if number == 0 else ACTIVATIONS[self.activation](x)
            x = F.linear(x, weight, bias)
        return x

    def _flat(self, x: Tensor) -> Tensor:
        if x.dim() < 2 or x[0].numel() != self.features:
            raise ValueError(
                f"Autoencoder: got shape {tuple(x.shape)}; takes (N, {self.features}), or samples of as many "
                f"numbers in any shape."
            )
        return x.flatten(1)
