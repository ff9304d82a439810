"""φ(q)·φ(k) for a φ that is drawn, so that its mean is exp(scale · q·k)."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from ...kernels.compiling import constant_to_compiler, of_one_size
from ..given import real, whole
from ..transforms import fixed, lasting
from .feature_map import FeatureMap

ROOM = 60.0  # exp of it, summed over any number of keys and multiplied by any value, is a float32
AT_ONCE, AT_ONCE_ELSEWHERE = 1 << 19, 1 << 24  # features looked at together


class RandomFeatures(FeatureMap):
    r"""A random kernel whose mean over draws is exp(scale · q·k) (positive random features, Performer).

    φ_c(x) = exp(w_c·x − |x|²/2) with w_c Gaussian, in orthogonal blocks unless `orthogonal=False`. Evaluated
    exactly as the kernel it is; it *approximates* `Softmax`, with an error that falls like 1/√features.

    >>> import torch, heedful
    >>> x = torch.linspace(-1, 1, 12).view(1, 6, 2)
    >>> error = heedful.attend(x, x, x, similarity=heedful.RandomFeatures(4096)) - heedful.attend(x, x, x)
    >>> bool(error.abs().max() < 0.05)
    True
    """

    size: int
    map = "exponential"

    def __init__(
        self, features: int = 256, *, scale: float | None = None, seed: int = 0, orthogonal: bool = True
    ):
        features, seed = whole("RandomFeatures(features", features, 1), whole("RandomFeatures(seed", seed, 0)
        if scale is not None:
            real("RandomFeatures(scale", scale)
            if not 0 < scale < math.inf:
                raise ValueError(f"RandomFeatures(scale={scale}): must be positive and finite.")
        super().__init__(self._unused, size=features, positive=True)
        self.scale, self.seed, self.orthogonal, self.hidden = scale, seed, orthogonal, False
        self.signature = ("RandomFeatures", features, scale, seed, orthogonal)

    def _unused(self, x):
        raise NotImplementedError("RandomFeatures maps queries and keys differently")

    def prepare(self, query, key):
        root = self._root(query.shape[-1])
        return query * root, key * root

    def _root(self, dim: int) -> float:
        return math.sqrt(dim**-0.5 if self.scale is None else self.scale)

    # What is taken from a feature's exponents of keys is given to those of queries. There the largest of a
    # row can be taken out, because it cancels in the weighted mean.

    def key_features(self, key):
        return torch.exp(self._key_exponents(key) - self.taken(key))

    def query_features(self, query):
        exponent = query @ self._directions(query).mT + self.taken(query)
        return torch.exp(exponent - exponent.detach().amax(-1, keepdim=True))

    def _key_exponents(self, key: Tensor) -> Tensor:
        return key @ self._directions(key).mT - key.square().sum(-1, keepdim=True) / 2

    def taken(self, like: Tensor) -> Tensor:
        """Of each feature, (…, 1, features): whatever the keys, no exponent is then above ROOM, for
        k·w − |k|²/2 = |w|²/2 − |k − w|²/2.
        """
        return (self._directions(like).square().sum(-1)[None, :] / 2 - ROOM).clamp_min(0)

    def fitted(self, key: Tensor, before: Tensor | None = None) -> RandomFeatures:
        """The same similarity for these keys (and for others, of which what was taken is `before`): from each
        feature is taken the largest exponent of any key, so that all are not rounded to 0 together.
        """
        found = [] if before is None else [before]
        if key.shape[-2]:
            found.append(self._largest(key))
        if not found:
            return self
        tops = found[0] if len(found) == 1 else torch.maximum(*found)
        return _Fitted(self, tops)

    def _largest(self, key: Tensor) -> Tensor:
        """Of each feature, (..., 1, features)."""
        with torch.no_grad():
            # By a key that is no number, which some may not hear, the others are not measured.
            key = self.prepare(key, key.nan_to_num(0, 0, 0))[1]
            if torch.compiler.is_compiling():
                return self._key_exponents(key).amax(-2, keepdim=True)
            at_once = AT_ONCE if key.device.type == "cpu" else AT_ONCE_ELSEWHERE
            parts = key.split(max(64, at_once // max(1, key.shape[:-2].numel() * self.size)), -2)
            found = [self._key_exponents(part).amax(-2, keepdim=True) for part in parts]
            return torch.cat(found, -2).amax(-2, keepdim=True) if len(found) > 1 else found[0]

    def _directions(self, like: Tensor) -> Tensor:
        return _directions(*self._drawn(like.shape[-1]), str(like.device), like.dtype)

    def table(self, dim: int, device: torch.device) -> tuple[Tensor, Tensor, float]:
        """(w, what is taken from keys' exponents, what |k|² is multiplied by), with `prepare` folded in: of q
        and k as they come.
        """
        root = fixed(self._root(dim))
        return *_scaled(*self._drawn(dim), str(device), root), root * root / 2

    def _drawn(self, dim: int) -> tuple[int, int, int, bool]:
        """What the directions depend on."""
        return fixed(self.size), fixed(dim), fixed(self.seed), self.orthogonal

    def __repr__(self):
        return f"RandomFeatures({fixed(self.size)})"


class _Fitted(RandomFeatures):
    """`RandomFeatures` that knows what to take from each feature's exponents, (..., 1, features)."""

    def __init__(self, similarity: RandomFeatures, tops: Tensor):
        super().__init__(
            similarity.size, scale=similarity.scale, seed=similarity.seed, orthogonal=similarity.orthogonal
        )
        self.tops = tops

    def taken(self, like):
        # Windows come in blocks, which go before the heads.
        return self.tops[..., None, :, :, :] if like.dim() > self.tops.dim() else self.tops


@constant_to_compiler
def _directions(count: int, dim: int, seed: int, orthogonal: bool, device: str, dtype: torch.dtype) -> Tensor:
    return of_one_size(_directions_there(count, dim, seed, orthogonal, device, dtype))[0]


@cache
def _directions_there(count, dim, seed, orthogonal, device: str, dtype: torch.dtype) -> Tensor:
    with lasting(), torch._C._DisableFuncTorch():
        return _random_directions(count, dim, seed, orthogonal).to(device, dtype)


@constant_to_compiler
def _scaled(count: int, dim: int, seed: int, orthogonal: bool, device: str, root: float):
    return of_one_size(*_scaled_directions(count, dim, seed, orthogonal, device, root))


@cache
def _scaled_directions(count, dim, seed, orthogonal, device: str, root: float) -> tuple[Tensor, Tensor]:
    with lasting():
        found = _random_directions(count, dim, seed, orthogonal)
        both = (found * root, (found.square().sum(-1) / 2 - ROOM).clamp_min(0))
        return both[0].to(device, torch.float32), both[1].to(device, torch.float32)


@cache
def _random_directions(count: int, dim: int, seed: int, orthogonal: bool) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    blocks = []
    # vmap forbids drawing, but this is the same for all its entries.
    with lasting(), torch._C._DisableFuncTorch():
        for _ in range(-(-count // dim)):
            block = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
            if orthogonal:
                lengths = torch.randn(dim, dim, generator=generator, dtype=torch.float64).norm(
                    dim=1, keepdim=True
                )
                rotation, triangle = torch.linalg.qr(block)
                # With these signs the rotation is uniformly distributed; as LAPACK leaves them it is not,
                # and φ is biased.
                block = rotation * triangle.diagonal().sign() * lengths
            blocks.append(block)
        # Not a view: of one a compiler would take the size of the whole for a variable.
        return torch.cat(blocks)[:count].clone()
