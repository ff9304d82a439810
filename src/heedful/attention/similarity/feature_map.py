"""φ(q)·φ(k) for a φ that is given."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from .base import Similarity, hashable


class FeatureMap(Similarity):
    """sim(q, k) = φ(q)·φ(k) for any φ from (..., d) to (..., features), be it an `nn.Module` with parameters.

    >>> import torch, heedful
    >>> q, k, v = torch.randn(3, 1, 6, 2)
    >>> heedful.attend(q, k, v, similarity=heedful.FeatureMap(torch.exp)).shape
    torch.Size([1, 6, 2])
    """

    kind = "features"
    log_form = False
    hidden = True

    def __init__(self, phi: Callable[[Tensor], Tensor], *, size: int | None = None, positive: bool = False):
        if not callable(phi):
            raise TypeError(f"FeatureMap(phi): phi must be callable, got {type(phi).__name__}.")
        self.phi, self.size, self.positive = phi, size, positive
        self._sizes: dict[int, int] = {}
        super().__init__(phi if hashable(phi) else id(phi), size, positive)

    def feature_count(self, dim):
        if self.size is not None:
            return self.size
        if dim not in self._sizes:
            features = self._tried(dim)
            if not isinstance(features, Tensor) or features.dim() != 2 or features.shape[0] != 1:
                got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
                raise ValueError(
                    f"{self}: phi must map (..., {dim}) to (..., features); it made {got} of (1, {dim})."
                )
            self._sizes[dim] = features.shape[-1]
        return self._sizes[dim]

    def _tried(self, dim: int) -> Tensor:
        """φ(0), where φ's own tensors are, and of their type; a function may have closed over either type."""
        probes = [torch.zeros(1, dim), torch.zeros(1, dim, dtype=torch.float64)]
        if isinstance(self.phi, torch.nn.Module):
            own = (x for x in (*self.phi.parameters(), *self.phi.buffers()) if x.is_floating_point())
            probes = [x.new_zeros(1, dim) for x in (next(own, None),) if x is not None] or probes
        reasons = []
        for probe in probes:
            try:
                with torch.no_grad():
                    return self.phi(probe)
            except (RuntimeError, IndexError, ValueError, TypeError) as reason:
                reasons.append(reason)
        raise ValueError(
            f"{self}: phi cannot be tried on zeros of shape (1, {dim}) ({reasons[0]}). Say how many features "
            f"it makes: FeatureMap(phi, size=…)."
        ) from reasons[0]

    def query_features(self, query):
        return self._mapped(query)

    def key_features(self, key):
        return self._mapped(key)

    def _mapped(self, x: Tensor) -> Tensor:
        """φ(x). Half precision is widened before it comes here, which a module's parameters are not."""
        if isinstance(self.phi, torch.nn.Module):
            parameter = next(iter(self.phi.parameters()), None)
            if parameter is not None and parameter.dtype != x.dtype:
                return self.phi(x.to(parameter.dtype)).to(x.dtype)
        return self.phi(x)

    def scores(self, query, key):
        return self.query_features(query) @ self.key_features(key).mT

    def pairs(self, query, key):
        return (self.query_features(query) * self.key_features(key)).sum(-1)

    def __repr__(self):
        return f"FeatureMap({getattr(self.phi, '__name__', type(self.phi).__name__)})"


def _elu_plus_one(x: Tensor) -> Tensor:
    return F.elu(x) + 1


class EluKernel(FeatureMap):
    """φ(x) = elu(x) + 1, the feature map of linear transformers (Katharopoulos et al., 2020).

    >>> import torch, heedful
    >>> x = torch.empty(1, 8, 4096, 64, device="meta")
    >>> plan = heedful.explain(x, x, x, similarity=heedful.EluKernel(), neighbors=heedful.Causal())
    >>> plan.problem.similarity.features
    64
    """

    map = "elu"

    def __init__(self):
        super().__init__(_elu_plus_one, positive=True)
        self.signature, self.hidden = ("EluKernel",), False

    def feature_count(self, dim):
        return dim

    def __repr__(self):
        return "EluKernel()"
