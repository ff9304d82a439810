"""What every similarity is: scores of pairs, weights made of them, facts for the planner."""

from __future__ import annotations

import math
from types import FunctionType, MethodType

import torch
from torch import Tensor

from ..problem import SimilarityFacts
from ..transforms import fixed


def per_head(parameter, ndim: int = 3):
    """A number, scalar tensor or per-head vector, viewed to broadcast against (..., heads, length, dim)."""
    if isinstance(parameter, Tensor) and parameter.dim() == 1:
        return parameter.view(-1, *[1] * (ndim - 1))
    return parameter


def signature_of(parameter) -> object:
    """What plans and checks read of a parameter: a number's value; a tensor's shape, device and gradient."""
    if isinstance(parameter, Tensor):
        return ("tensor", tuple(parameter.shape), parameter.requires_grad, parameter.device)
    return parameter


def short(number: float) -> str:
    """As few digits as give the number back."""
    number = fixed(number)
    return format(number, "g") if float(format(number, "g")) == number else repr(number)


def hashable(thing) -> bool:
    if isinstance(thing, (FunctionType, MethodType)):
        return True  # said without hash(), which not every torch.compile can trace
    try:
        hash(thing)
    except TypeError:
        return False
    return True


class Similarity:
    """Base of all similarities. Subclasses set `name` and `kind`, and say how to score pairs."""

    name: str
    kind: str
    log_form = True
    positive = True
    degree = 0
    map = ""  # which φ, where there are kernels that make it
    hidden = False  # scores depend on tensors other than query and key that may want gradients

    def __init__(self, *signature):
        self.signature = (type(self).__name__, *signature)

    def facts(self, dim: int) -> SimilarityFacts:
        features = self.feature_count(dim)
        return SimilarityFacts(
            self.__repr__(), self.kind, self.log_form, features, self.positive, self.degree, self.map
        )

    def check(self, query_dim: int, key_dim: int, heads: int) -> None:
        if query_dim != key_dim:
            raise ValueError(
                f"attend(): key has {key_dim} features, query has {query_dim}; they must match for {self}. "
                f"Project one of them, or use Additive with scalar query and key."
            )

    def feature_count(self, dim: int) -> int | None:
        return None

    def resolved(self, dim: int) -> float | Tensor:
        """β of exp(β q·k), for those of kind "dot"."""
        raise NotImplementedError

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return query, key

    def fitted(self, key: Tensor) -> Similarity:
        """The same similarity, told of all keys before any is prepared, for what it may take out of them."""
        return self

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores of all pairs of prepared (..., N, d) queries and (..., M, d) keys: (..., N, M)."""
        raise NotImplementedError

    def pairs(self, query: Tensor, key: Tensor) -> Tensor:
        """Scores of matched rows, (..., E, d) and (..., E, d): (..., E)."""
        raise NotImplementedError

    def query_features(self, query: Tensor) -> Tensor:
        """φ of prepared queries, (..., features), where there is a finite map."""
        raise NotImplementedError

    def key_features(self, key: Tensor) -> Tensor:
        raise NotImplementedError

    def weigh(self, scores: Tensor, bias: Tensor | None, allowed: Tensor | None) -> Tensor:
        """Unnormalised weights sim·exp(bias), zero where not allowed, each row scaled to stay in range."""
        if self.log_form:
            logits = scores if bias is None else scores + bias
            if allowed is not None:
                logits = logits.masked_fill(~allowed, -math.inf)
            return torch.exp(logits - row_top(logits))
        if bias is not None:
            if allowed is not None:
                bias = bias.masked_fill(~allowed, -math.inf)
            scores = scores * torch.exp(bias - row_top(bias))
        return scores if allowed is None else scores.masked_fill(~allowed, 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def row_top(logits: Tensor) -> Tensor:
    """The largest entry of each row, or 0 if it has none: subtracted before exp. A constant to autograd."""
    if logits.shape[-1] == 0:
        return logits.new_zeros(logits.shape[:-1] + (1,))
    top = logits.detach().amax(-1, keepdim=True)
    return top.masked_fill(top == -math.inf, 0)
