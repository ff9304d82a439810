"""Normalisation: subtract a mean, divide by a deviation. The layers differ in what they average over.

For x of shape (N, C, H, W), samples, channels and places, or (…, D), tokens and features:

    layer         averages over                  axes                              statistics
    BatchNorm     samples and places             (0, 2, 3) of (N, C, H, W)         one a channel
    InstanceNorm  places                         (2, 3) of (N, C, H, W)            one a sample and channel
    GroupNorm     places, channels of a group    (2, 3, 4) of (N, G, C/G, H, W)    one a sample and group
    LayerNorm     the features of a token        (−1,) of (…, D)                   one a token
    RMSNorm       as LayerNorm, not centred      (−1,) of (…, D)                   one a token

BatchNorm alone lets the samples of a batch meet, so it alone keeps running averages for evaluation. Each
layer is torch's (parameters, `state_dict`, kernel) with its formula beside it, which `fused=False` runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from .checks import check_choice


def moments_over(x: Tensor, axes: int | Iterable[int], *, centre: bool = True) -> tuple[Tensor, Tensor]:
    """μ = mean of x, σ² = mean of (x − μ)², over `axes`, which stay as dimensions of size 1.

    Without `centre`, μ is 0 and σ² the mean square. Half precision is averaged in float32.

    >>> mean, variance = moments_over(torch.tensor([[1.0, 3.0], [2.0, 6.0]]), axes=1)
    >>> mean.flatten(), variance.flatten()
    (tensor([2., 4.]), tensor([1., 4.]))
    """
    places = _places(axes, x)
    x = _wide(x)
    mean = x.mean(places, keepdim=True) if centre else x.new_zeros(())
    return mean, (x - mean).square().mean(places, keepdim=True)


def normalize_over(
    x: Tensor,
    axes: int | Iterable[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    centre: bool = True,
    moments: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """y = weight · (x − μ) / √(σ² + eps) + bias, with μ and σ² the mean and variance of x over `axes`.

    `weight` and `bias` broadcast against x. `centre=False` leaves the mean in and divides by the root mean
    square. `moments=(μ, σ²)` stand in for x's own where given: running averages, say.

    >>> x = torch.tensor([[1.0, 3.0], [2.0, 6.0]])
    >>> normalize_over(x, axes=1, eps=0.0)
    tensor([[-1.,  1.],
            [-1.,  1.]])
    >>> normalize_over(x, axes=0, eps=0.0)
    tensor([[-1., -1.],
            [ 1.,  1.]])
    """
    mean, variance = moments_over(x, axes, centre=centre) if moments is None else moments
    y = (_wide(x) - mean) * torch.rsqrt(variance + eps)
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y.to(x.dtype)


class _Formula:
    """Laid over a layer of torch's: runs that layer's kernel if `fused`, the formula if not."""

    fused: bool

    def formula(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def kernel(self, x: Tensor) -> Tensor:
        return super().forward(x)  # type: ignore[misc]

    def check(self, x: Tensor) -> None:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        self.check(x)
        return self.kernel(x) if self.fused else self.formula(x)


class BatchNorm(_Formula, _BatchNorm):
    """y = weight_c · (x − μ_c) / √(σ²_c + eps) + bias_c, over the samples and places of channel c.

    x is (N, C, …). In training, running averages of μ and σ² follow by `momentum` (None: the plain average of
    all batches so far); in evaluation they are used, so that samples do not meet.

    >>> norm, x = BatchNorm(2), torch.randn(8, 2, 5, 5)
    >>> norm(x).mean((0, 2, 3)).abs().max() < 1e-6
    tensor(True)
    >>> torch.equal(norm.eval()(x)[:1], norm(x[:1]))
    True
    """

    def __init__(
        self,
        channels: int,
        *,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        fused: bool = True,
    ):
        super().__init__(channels, eps, momentum, affine, track_running_stats)
        self.fused = fused

    def formula(self, x: Tensor) -> Tensor:
        axes = [0, *range(2, x.dim())]
        if self.running_mean is not None and self.running_var is not None and not self.training:
            moments = _along_channels(x, self.running_mean), _along_channels(x, self.running_var)
        else:
            moments = moments_over(x, axes)
        if self.training and self.track_running_stats:
            self._follow(*moments, count=x.numel() // x.shape[1])
        weight, bias = _affine(self, x)
        return normalize_over(x, axes, weight, bias, self.eps, moments=moments)

    @torch.no_grad()
    def _follow(self, mean: Tensor, variance: Tensor, count: int) -> None:
        """running ← running + m · (new − running); the variance followed is the unbiased one."""
        running_mean, running_var, batches = self.running_mean, self.running_var, self.num_batches_tracked
        assert running_mean is not None and running_var is not None and batches is not None
        batches += 1
        m = 1 / batches if self.momentum is None else self.momentum
        running_mean += m * (mean.flatten() - running_mean)
        running_var += m * (variance.flatten() * count / (count - 1) - running_var)

    def check(self, x: Tensor) -> None:
        _check_channels(self, self.num_features, x, least=2)
        if self.training and x.numel() == x.shape[1]:
            raise ValueError(
                f"{self}: got one value a channel, shape {tuple(x.shape)}, which has no variance; "
                f"training takes two or more."
            )

    def _check_input_dim(self, x: Tensor) -> None:
        """Torch's hook for what `check` has done."""


class InstanceNorm(_Formula, _InstanceNorm):
    """y = weight_c · (x − μ_nc) / √(σ²_nc + eps) + bias_c, over the places of channel c of sample n.

    x is (N, C, length, …).

    >>> x = torch.randn(8, 2, 5, 5)
    >>> InstanceNorm(2)(x).mean((2, 3)).abs().max() < 1e-6
    tensor(True)
    """

    def __init__(self, channels: int, *, eps: float = 1e-5, affine: bool = False, fused: bool = True):
        super().__init__(channels, eps, affine=affine)
        self.fused = fused

    def formula(self, x: Tensor) -> Tensor:
        weight, bias = _affine(self, x)
        return normalize_over(x, range(2, x.dim()), weight, bias, self.eps)

    def kernel(self, x: Tensor) -> Tensor:
        return F.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)

    def check(self, x: Tensor) -> None:
        _check_channels(self, self.num_features, x, least=3)


class GroupNorm(_Formula, nn.GroupNorm):
    """y = weight_c · (x − μ_ng) / √(σ²_ng + eps) + bias_c, over the places and channels of group g.

    x is (N, C, …); n is the sample. As many groups as channels is InstanceNorm.

    >>> x = torch.randn(8, 6, 5, 5)
    >>> torch.allclose(GroupNorm(6, 6)(x), InstanceNorm(6)(x), atol=1e-5)
    True
    """

    def __init__(
        self, groups: int, channels: int, *, eps: float = 1e-5, affine: bool = True, fused: bool = True
    ):
        super().__init__(groups, channels, eps, affine)
        self.fused = fused

    def formula(self, x: Tensor) -> Tensor:
        grouped = x.unflatten(1, (self.num_groups, -1))  # (N, G, C/G, …)
        weight, bias = (
            each if each is None else each.unflatten(0, (self.num_groups, -1)) for each in _affine(self, x)
        )
        return normalize_over(grouped, range(2, grouped.dim()), weight, bias, self.eps).flatten(1, 2)

    def check(self, x: Tensor) -> None:
        _check_channels(self, self.num_channels, x, least=2)


class LayerNorm(_Formula, nn.LayerNorm):
    """y = weight · (x − μ) / √(σ² + eps) + bias, over the last dimensions of x, of size `features`.

    >>> LayerNorm(2)(torch.tensor([[1.0, 3.0], [10.0, 30.0]])).detach()
    tensor([[-1.0000,  1.0000],
            [-1.0000,  1.0000]])
    """

    def __init__(
        self,
        features: int | Sequence[int],
        *,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
        fused: bool = True,
    ):
        super().__init__(features, eps, elementwise_affine=affine, bias=bias)  # type: ignore[arg-type]
        self.fused = fused

    def formula(self, x: Tensor) -> Tensor:
        return normalize_over(x, range(-len(self.normalized_shape), 0), self.weight, self.bias, self.eps)

    def check(self, x: Tensor) -> None:
        _check_last(self, self.normalized_shape, x)


class RMSNorm(_Formula, nn.RMSNorm):
    """y = weight · x / √(mean x² + eps), over the last dimensions of x, of size `features`.

    >>> RMSNorm(2, affine=False)(torch.tensor([[1.0, 1.0], [30.0, 40.0]]))
    tensor([[1.0000, 1.0000],
            [0.8485, 1.1314]])
    """

    eps: float

    def __init__(
        self, features: int | Sequence[int], *, eps: float = 1e-6, affine: bool = True, fused: bool = True
    ):
        super().__init__(features, eps, elementwise_affine=affine)  # type: ignore[arg-type]
        self.fused = fused

    def formula(self, x: Tensor) -> Tensor:
        axes = range(-len(self.normalized_shape), 0)
        return normalize_over(x, axes, self.weight, eps=self.eps, centre=False)

    def check(self, x: Tensor) -> None:
        _check_last(self, self.normalized_shape, x)


CHANNEL_NORMS = ("batch", "instance", "group", "layer", "none")


def channel_norm(kind: str, channels: int) -> nn.Module:
    """The norm behind a convolution by name, with a weight and a bias a channel.

    "batch", "instance", "layer" (over a whole sample), "none", or "group": of eight channels, four, two or
    one, whichever divides them.

    >>> channel_norm("none", 16), channel_norm("group", 12).num_groups
    (Identity(), 3)
    """
    check_choice("channel_norm", "norm", kind, CHANNEL_NORMS)
    if kind == "batch":
        return BatchNorm(channels)
    if kind == "instance":
        return InstanceNorm(channels, affine=True)
    if kind == "none":
        return nn.Identity()
    return GroupNorm(1 if kind == "layer" else channels // math.gcd(channels, 8), channels)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _along_channels(x: Tensor, parameter: Tensor) -> Tensor:
    """One entry a channel, viewed as (C, 1, …) to broadcast against x of (N, C, …)."""
    return parameter.view(-1, *[1] * (x.dim() - 2))


def _affine(layer, x: Tensor) -> tuple[Tensor, Tensor] | tuple[None, None]:
    if layer.weight is None:
        return None, None
    return _along_channels(x, layer.weight), _along_channels(x, layer.bias)


def _places(axes: int | Iterable[int], x: Tensor) -> list[int]:
    given = [axes] if isinstance(axes, int) else list(axes)
    places = sorted({axis % x.dim() for axis in given if -x.dim() <= axis < x.dim()})
    if not given or len(places) != len(given):
        raise ValueError(
            f"axes={axes!r}: x has shape {tuple(x.shape)}; takes one or more different numbers "
            f"from {-x.dim()} to {x.dim() - 1}."
        )
    return places


def _check_channels(layer, channels: int, x: Tensor, least: int) -> None:
    if x.dim() < least or x.shape[1] != channels:
        rest = "length, …" if least == 3 else "…"
        raise ValueError(f"{layer}: got an input of shape {tuple(x.shape)}; takes (N, {channels}, {rest}).")


def _check_last(layer, shape: Sequence[int], x: Tensor) -> None:
    if tuple(x.shape[-len(shape) :]) != tuple(shape):
        sizes = ", ".join(str(size) for size in shape)
        raise ValueError(f"{layer}: got an input of shape {tuple(x.shape)}; takes (…, {sizes}).")
