"""(q·k + c)^p, and its monomials."""

from __future__ import annotations

import itertools
import math
from functools import cache

import torch
from torch import Tensor

from ...kernels.compiling import constant_to_compiler, of_one_size
from ..given import real, whole
from ..transforms import fixed, lasting
from .base import Similarity, short

ROOM = 60  # 2^ROOM, summed over any number of keys and multiplied by any value, is a float32


class Polynomial(Similarity):
    """sim(q, k) = (q·k + constant)^degree, with a feature map of all monomials of the degree.

    Even degrees are positive. Odd degrees may be negative, and so may their normaliser.

    >>> import torch, heedful
    >>> q, k, v = torch.randn(3, 1, 6, 2, dtype=torch.float64)
    >>> weights = (q @ k.mT + 1) ** 2
    >>> out = heedful.attend(q, k, v, similarity=heedful.Polynomial(degree=2))
    >>> torch.allclose(out, weights @ v / weights.sum(-1, keepdim=True))
    True
    """

    kind = "power"
    log_form = False

    def __init__(self, degree: int = 2, constant: float = 1.0):
        degree = whole("Polynomial(degree", degree, 1)
        real("Polynomial(constant", constant)
        if not math.isfinite(fixed(constant)):
            raise ValueError(f"Polynomial(constant={constant}): constant must be finite.")
        self.degree, self.constant = degree, float(constant)
        self.positive, self.map = degree % 2 == 0, "square" if degree == 2 else ""
        super().__init__(degree, self.constant)

    def feature_count(self, dim):
        width, degree = fixed(dim) + (1 if self.constant != 0 else 0), fixed(self.degree)
        return width**2 if degree == 2 else math.comb(width + degree - 1, degree)

    def prepare(self, query, key):
        return self.prepare_query(query), self.append_root(key, sign=True) / self.key_size(key)

    def prepare_query(self, query: Tensor) -> Tensor:
        query = self.append_root(query)
        return query / _power(_length(query))

    def append_root(self, x: Tensor, sign: bool = False) -> Tensor:
        """[x, √c], so that q·k + c is one dot product; a negative c keeps its sign on the key's side."""
        if self.constant == 0:
            return x
        root = math.sqrt(abs(self.constant)) * (math.copysign(1.0, self.constant) if sign else 1.0)
        return torch.cat([x, x.new_full((1,), root).expand(x.shape[:-1] + (1,))], -1)

    def key_size(self, key: Tensor) -> Tensor:
        """One number a head, (..., 1, 1): how much shorter keys must be for their powers to fit.

        Not the length of the longest: beside one that is out of proportion, and that nobody need hear, the
        others would be nothing. One whose square overflows is not even measured.
        """
        if key.shape[-2] == 0:
            return key.new_ones(key.shape[:-2] + (1, 1))
        length = _length(self.append_root(key))
        size = _power(torch.where(length < math.inf, length, 0).amax(-2, keepdim=True))
        room = 2.0 ** (ROOM // fixed(self.degree))
        return size / size.clamp(1 / room, room)

    def scores(self, query, key):
        return (query @ key.mT) ** self.degree

    def pairs(self, query, key):
        return (query * key).sum(-1) ** self.degree

    def query_features(self, query):
        if self.degree == 2:
            return _outer(query)
        factors, counts = _monomials(query, self.degree)
        return _products(query, factors) * counts

    def key_features(self, key):
        return _outer(key) if self.degree == 2 else _products(key, _monomials(key, self.degree)[0])

    def __repr__(self):
        constant = "" if self.constant == 1.0 else f", constant={short(self.constant)}"
        return f"Polynomial(degree={fixed(self.degree)}{constant})"


def _length(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True)


def _power(length: Tensor) -> Tensor:
    """Rounded up to a power of two, for dividing by it is exact; 1 for 0.

    NaN where squares overflow: divided by infinity, a row would be 0 and its listener hear nobody, silently.
    """
    size = torch.where(length > 0, torch.exp2(torch.ceil(torch.log2(length))), torch.ones_like(length))
    return torch.where(length < math.inf, size, math.nan)


def _outer(x: Tensor) -> Tensor:
    """All products of two coordinates, (..., d) → (..., d²).

    Twice as many as there are distinct ones, and two to five times as fast on a CPU all the same: picking the
    distinct ones gathers number by number, and products with the features are cheap beside that.
    """
    return (x[..., :, None] * x[..., None, :]).flatten(-2)


def _monomials(x: Tensor, degree: int) -> tuple[list[Tensor], Tensor]:
    """The distinct monomials of a degree: their factors, each (features,), and counts in (Σx)^degree."""
    *factors, counts = _monomial_table(fixed(x.shape[-1]), fixed(degree), str(x.device))
    return factors, counts.to(x.dtype)


@constant_to_compiler
def _monomial_table(width: int, degree: int, device: str) -> tuple[Tensor, ...]:
    return of_one_size(*_monomial_tensors(width, degree, device))


@cache
def _monomial_tensors(width: int, degree: int, device: str) -> tuple[Tensor, ...]:
    combos = list(itertools.combinations_with_replacement(range(width), degree))
    counts = [
        math.factorial(degree) / math.prod(math.factorial(combo.count(x)) for x in set(combo))
        for combo in combos
    ]
    with lasting():
        # Each a tensor of its own: a compiler cannot take parts of what it is given under torch.func.
        factors = (torch.tensor(each, device=device) for each in zip(*combos, strict=True))
        return *factors, torch.tensor(counts, dtype=torch.float64, device=device)


def _products(x: Tensor, factors: list[Tensor]) -> Tensor:
    """Π_p x[factors_p]: the monomials of x, (..., d) → (..., features)."""
    product = x.index_select(-1, factors[0])
    for position in factors[1:]:
        product = product * x.index_select(-1, position)
    return product
