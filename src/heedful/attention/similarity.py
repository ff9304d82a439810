"""How alike a listener's query and a speaker's key are: sim(q_i, k_j), and what the planner may know of it.

A similarity with a *log form* returns log sim from `scores` (so the largest score can be subtracted before
the exponential); a *kernel* returns sim itself, and may have a finite feature map, sim(q, k) = φ(q)·φ(k).
`prepare` is applied once to whole tensors: it folds scales in and rescales kernels to where float32 neither
overflows nor vanishes. That is free: the output is a weighted mean, so a factor common to a row cancels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache
from types import FunctionType, MethodType

import torch
from torch import Tensor
from torch.nn import functional as F

from .problem import SimilarityFacts
from .transforms import constant_to_compiler, fixed, lasting


def per_head(parameter, ndim: int = 3):
    """A number, scalar tensor or per-head vector, viewed to broadcast against (..., heads, length, dim)."""
    if isinstance(parameter, Tensor) and parameter.dim() == 1:
        return parameter.view(-1, *[1] * (ndim - 1))
    return parameter


def _signature(parameter) -> object:
    """What plans and checks read of a parameter: a number's value; a tensor's shape, device and gradient."""
    if isinstance(parameter, Tensor):
        return ("tensor", tuple(parameter.shape), parameter.requires_grad, parameter.device)
    return parameter


def _short(number: float) -> str:
    """As few digits as give the number back."""
    number = fixed(number)
    return format(number, "g") if float(format(number, "g")) == number else repr(number)


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
            repr(self), self.kind, self.log_form, features, self.positive, self.degree, self.map
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
            return torch.exp(logits - _row_top(logits))
        if bias is not None:
            if allowed is not None:
                bias = bias.masked_fill(~allowed, -math.inf)
            scores = scores * torch.exp(bias - _row_top(bias))
        return scores if allowed is None else scores.masked_fill(~allowed, 0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _row_top(logits: Tensor) -> Tensor:
    """The largest entry of each row, or 0 if it has none: subtracted before exp. A constant to autograd."""
    if logits.shape[-1] == 0:
        return logits.new_zeros(logits.shape[:-1] + (1,))
    top = logits.detach().amax(-1, keepdim=True)
    return top.masked_fill(top == -math.inf, 0)


class _Dot(Similarity):
    def scores(self, query, key):
        return query @ key.mT

    def pairs(self, query, key):
        return (query * key).sum(-1)


class Softmax(_Dot):
    r"""sim(q, k) = exp(scale · q·k), with scale 1/√d unless given.

    `scale` is the inverse temperature β of the textbooks. It may be a number, a tensor, or a tensor with one
    entry a head, and gets a gradient if it wants one.

    >>> import torch, heedful
    >>> q, k, v = torch.randn(3, 2, 5, 4)
    >>> soft = heedful.attend(q, k, v, similarity=heedful.Softmax(scale=0.0))
    >>> torch.allclose(soft, v.mean(-2, keepdim=True).expand_as(v), atol=1e-6)
    True
    """

    kind = "dot"

    def __init__(self, scale: float | Tensor | None = None):
        if isinstance(scale, (int, float)) and not math.isfinite(fixed(scale)):
            raise ValueError(
                f"Softmax(scale={scale}): scale must be finite; for the limit scale → ∞ use Argmax()."
            )
        if not isinstance(scale, (int, float, Tensor, type(None))):
            raise TypeError(
                f"Softmax(scale={scale!r}): takes a number, or a tensor with one entry or one a head."
            )
        if isinstance(scale, Tensor) and not scale.is_floating_point():
            raise TypeError(f"Softmax(scale=…): a tensor must be floating point, got {scale.dtype}.")
        if isinstance(scale, Tensor) and scale.dim() > 1:
            raise ValueError(
                f"Softmax(scale=…): got shape {tuple(scale.shape)}; give a scalar, or one entry a head."
            )
        self.scale = scale
        super().__init__(_signature(scale))

    def resolved(self, dim: int):
        return dim**-0.5 if self.scale is None else self.scale

    def check(self, query_dim, key_dim, heads):
        super().check(query_dim, key_dim, heads)
        if isinstance(self.scale, Tensor) and self.scale.dim() == 1 and self.scale.numel() not in (1, heads):
            raise ValueError(
                f"Softmax(scale=…): got {self.scale.numel()} entries for {heads} heads; "
                f"give a scalar or one a head."
            )

    def prepare(self, query, key):
        scale = per_head(self.resolved(query.shape[-1]))
        return query * (scale.to(query.dtype) if isinstance(scale, Tensor) else scale), key

    def __repr__(self):
        if self.scale is None:
            return "Softmax()"
        return f"Softmax(scale={'tensor' if isinstance(self.scale, Tensor) else _short(self.scale)})"


class Argmax(_Dot):
    """The limit of `Softmax(scale=β)` as β → ∞: all attention on the best-matching key.

    Ties share, in proportion to exp(position). Queries and keys get exactly zero gradient; values do get one.

    >>> import torch, heedful
    >>> q, k = torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    >>> heedful.attend(q, k, torch.tensor([[7.0], [8.0]]), similarity=heedful.Argmax())
    tensor([[7.]])
    """

    kind = "argmax"

    def __init__(self):
        super().__init__()

    def weigh(self, scores, bias, allowed):
        scores = scores.detach()
        silent = None if allowed is None else ~allowed
        if bias is not None:
            unheard = bias == -math.inf
            silent = unheard if silent is None else silent | unheard
        if silent is not None:
            scores = scores.masked_fill(silent, -math.inf)
        winners = (scores == _row_top(scores)) & (scores > -math.inf)
        if bias is None:
            return winners.to(scores.dtype)
        bias = bias.masked_fill(~winners, -math.inf)
        return torch.exp(bias - _row_top(bias))


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
        if isinstance(degree, bool) or not isinstance(degree, int) or degree < 1:
            raise ValueError(f"Polynomial(degree={degree!r}): degree must be a whole number, 1 or more.")
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
        return query / _size(query)

    def append_root(self, x: Tensor, sign: bool = False) -> Tensor:
        """[x, √c], so that q·k + c is one dot product; a negative c keeps its sign on the key's side."""
        if self.constant == 0:
            return x
        root = math.sqrt(abs(self.constant)) * (math.copysign(1.0, self.constant) if sign else 1.0)
        return torch.cat([x, x.new_full((1,), root).expand(x.shape[:-1] + (1,))], -1)

    def key_size(self, key: Tensor) -> Tensor:
        """One number a head, about the longest key: (..., 1, 1)."""
        if key.shape[-2] == 0:
            return key.new_ones(key.shape[:-2] + (1, 1))
        return _size(self.append_root(key)).amax(-2, keepdim=True)

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
        constant = "" if self.constant == 1.0 else f", constant={_short(self.constant)}"
        return f"Polynomial(degree={fixed(self.degree)}{constant})"


def _size(x: Tensor) -> Tensor:
    """The length of each row rounded up to a power of two (dividing by it is exact); 1 for a zero row."""
    length = torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True)
    return torch.where(length > 0, torch.exp2(torch.ceil(torch.log2(length))), torch.ones_like(length))


def _outer(x: Tensor) -> Tensor:
    """All products of two coordinates, (..., d) → (..., d²).

    Twice as many as there are distinct ones, and two to five times as fast on a CPU all the same: picking the
    distinct ones gathers number by number, and products with the features are cheap beside that.
    """
    return (x[..., :, None] * x[..., None, :]).flatten(-2)


def _monomials(x: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    """The distinct monomials of a degree: their factors, (degree, features), and counts in (Σx)^degree."""
    factors, counts = _monomial_table(x.shape[-1], degree, str(x.device))
    return factors, counts.to(x.dtype)


@constant_to_compiler
def _monomial_table(width: int, degree: int, device: str) -> tuple[Tensor, Tensor]:
    return _monomial_tensors(width, degree, device)


@cache
def _monomial_tensors(width: int, degree: int, device: str) -> tuple[Tensor, Tensor]:
    combos = list(itertools.combinations_with_replacement(range(width), degree))
    counts = [
        math.factorial(degree) / math.prod(math.factorial(combo.count(x)) for x in set(combo))
        for combo in combos
    ]
    with lasting():
        factors = torch.tensor(combos, device=device).view(-1, degree).T.contiguous()
        return factors, torch.tensor(counts, dtype=torch.float64, device=device)


def _products(x: Tensor, factors: Tensor) -> Tensor:
    """Π_p x[factors_p]: the monomials of x, (..., d) → (..., features)."""
    product = x.index_select(-1, factors[0])
    for position in factors[1:]:
        product = product * x.index_select(-1, position)
    return product


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
        super().__init__(phi if _hashable(phi) else id(phi), size, positive)

    def feature_count(self, dim):
        if self.size is not None:
            return self.size
        if dim not in self._sizes:
            with torch.no_grad():
                features = self.phi(self._probe(dim))
            if not isinstance(features, Tensor) or features.dim() != 2 or features.shape[0] != 1:
                got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
                raise ValueError(
                    f"{self}: phi must map (..., {dim}) to (..., features); it made {got} of (1, {dim})."
                )
            self._sizes[dim] = features.shape[-1]
        return self._sizes[dim]

    def _probe(self, dim: int) -> Tensor:
        parameter = next(iter(self.phi.parameters()), None) if isinstance(self.phi, torch.nn.Module) else None
        return torch.zeros(1, dim) if parameter is None else parameter.new_zeros(1, dim)

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


def _hashable(thing) -> bool:
    if isinstance(thing, (FunctionType, MethodType)):
        return True  # said without hash(), which not every torch.compile can trace
    try:
        hash(thing)
    except TypeError:
        return False
    return True


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
        if features < 1:
            raise ValueError(f"RandomFeatures(features={features}): must be 1 or more.")
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

    # Keys carry exp(−|k − w|²/2), which never exceeds 1; the missing exp(|w|²/2) goes to the queries, where
    # the largest exponent of a row can be subtracted because it cancels in the weighted mean.

    def key_features(self, key):
        directions = self._directions(key)
        return torch.exp(
            key @ directions.mT - key.square().sum(-1, keepdim=True) / 2 - directions.square().sum(-1) / 2
        )

    def query_features(self, query):
        directions = self._directions(query)
        exponent = query @ directions.mT + directions.square().sum(-1) / 2
        return torch.exp(exponent - exponent.detach().amax(-1, keepdim=True))

    def _directions(self, like: Tensor) -> Tensor:
        return _directions(*self._drawn(like.shape[-1]), str(like.device), like.dtype)

    def table(self, dim: int, device: torch.device) -> tuple[Tensor, Tensor, float]:
        """(w, |w|²/2, what |k|² is multiplied by), with `prepare` folded in: of q and k as they come."""
        root = fixed(self._root(dim))
        return *_scaled(*self._drawn(dim), str(device), root), root * root / 2

    def _drawn(self, dim: int) -> tuple[int, int, int, bool]:
        """What the directions depend on."""
        return fixed(self.size), fixed(dim), fixed(self.seed), self.orthogonal

    def __repr__(self):
        return f"RandomFeatures({fixed(self.size)})"


@constant_to_compiler
def _directions(count: int, dim: int, seed: int, orthogonal: bool, device: str, dtype: torch.dtype) -> Tensor:
    return _directions_there(count, dim, seed, orthogonal, device, dtype)


@cache
def _directions_there(count, dim, seed, orthogonal, device: str, dtype: torch.dtype) -> Tensor:
    with lasting(), torch._C._DisableFuncTorch():
        return _random_directions(count, dim, seed, orthogonal).to(device, dtype)


@constant_to_compiler
def _scaled(count: int, dim: int, seed: int, orthogonal: bool, device: str, root: float):
    return _scaled_directions(count, dim, seed, orthogonal, device, root)


@cache
def _scaled_directions(count, dim, seed, orthogonal, device: str, root: float) -> tuple[Tensor, Tensor]:
    with lasting():
        found = _random_directions(count, dim, seed, orthogonal)
        both = (found * root, found.square().sum(-1) / 2)
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
        return torch.cat(blocks)[:count]


class Additive(Similarity):
    r"""sim = exp(leaky(q_i + k_j)) for scalar q, k (GAT); with `weight` a, exp(a·leaky(q_i + k_j)) (GATv2).

    The query belongs to the listener i, the key to the speaker j. `weight` has one row a head, or one row.

    >>> import torch, heedful
    >>> graph = heedful.Graph.from_edges([0, 1, 2], [1, 2, 0], nodes=3)
    >>> listener, speaker, x = torch.randn(3, 1), torch.randn(3, 1), torch.randn(3, 4)
    >>> out = heedful.attend(listener, speaker, x, similarity=heedful.Additive(), neighbors=graph)
    >>> torch.allclose(out, x[[2, 0, 1]])     # one neighbour each: it gets all the attention
    True
    """

    def __init__(self, slope: float = 0.2, weight: Tensor | None = None):
        if not 0 <= slope <= 1:
            raise ValueError(f"Additive(slope={slope}): the slope of the leaky ReLU must lie in [0, 1].")
        if weight is not None and (not isinstance(weight, Tensor) or weight.dim() not in (1, 2)):
            raise TypeError("Additive(weight=…): takes a tensor of shape (dim,) or (heads, dim).")
        if weight is not None and not weight.is_floating_point():
            raise TypeError(f"Additive(weight=…): must be floating point, got {weight.dtype}.")
        self.slope, self.weight = float(slope), weight
        self.kind = "additive" if weight is None else "additive_v2"
        self.hidden = weight is not None
        super().__init__(self.slope, _signature(weight))

    def check(self, query_dim, key_dim, heads):
        wanted = 1 if self.weight is None else self.weight.shape[-1]
        if query_dim != wanted or key_dim != wanted:
            advice = "."
            if self.weight is None:
                advice = ": project them to one score a node, or pass weight= (GATv2)."
            raise ValueError(
                f"attend(): query has {query_dim} features and key has {key_dim}; "
                f"{self} takes {wanted} of each{advice}"
            )
        if self.weight is not None and self.weight.dim() == 2 and self.weight.shape[0] not in (1, heads):
            raise ValueError(f"Additive(weight=…): got {self.weight.shape[0]} rows for {heads} heads.")

    def scores(self, query, key):
        if self.weight is None:
            return F.leaky_relu(query + key.mT, self.slope)
        hidden = F.leaky_relu(query[..., :, None, :] + key[..., None, :, :], self.slope)
        return (hidden * _per_head_rows(self.weight, 4).to(hidden.dtype)).sum(-1)

    def pairs(self, query, key):
        hidden = F.leaky_relu(query + key, self.slope)
        if self.weight is None:
            return hidden.squeeze(-1)
        return (hidden * _per_head_rows(self.weight, 3).to(hidden.dtype)).sum(-1)

    def __repr__(self):
        return f"Additive(slope={_short(self.slope)}{', weight' if self.weight is not None else ''})"


def _per_head_rows(weight: Tensor, ndim: int) -> Tensor:
    """Rows (heads, dim) viewed to broadcast against `ndim` dimensions, (heads, …, dim); one row as it is."""
    return weight if weight.dim() == 1 else weight.view(weight.shape[0], *[1] * (ndim - 2), weight.shape[1])


class Uniform(Similarity):
    """sim = 1: the mean over the neighbours (weighted by exp(position) or by the graph's edge weights).

    >>> import torch, heedful
    >>> x = torch.arange(4.0).view(4, 1)
    >>> heedful.attend(x, x, x, similarity=heedful.Uniform(), neighbors=heedful.Causal()).flatten()
    tensor([0.0000, 0.5000, 1.0000, 1.5000])
    """

    kind = "uniform"

    def __init__(self):
        super().__init__()

    def check(self, query_dim, key_dim, heads):
        pass

    def feature_count(self, dim):
        return 1

    def scores(self, query, key):
        return query.new_zeros(1, 1).expand(query.shape[:-1] + (key.shape[-2],))

    def pairs(self, query, key):
        return query.new_zeros(1).expand(query.shape[:-1])

    def query_features(self, query):
        return query.new_ones(1, 1).expand(query.shape[:-1] + (1,))

    key_features = query_features


class ScoreFunction(Similarity):
    """sim = exp(fn(query, key)), fn from (..., N, d) and (..., M, d) to (..., N, M) scores: the escape hatch.

    The planner cannot look inside, so it runs tiled. `fn` sees blocks of queries and keys, never positions.

    >>> import torch, heedful
    >>> q, k, v = torch.randn(3, 1, 6, 2)
    >>> closeness = heedful.ScoreFunction(lambda q, k: -torch.cdist(q, k))
    >>> heedful.attend(q, k, v, similarity=closeness).shape
    torch.Size([1, 6, 2])
    """

    kind = "function"
    hidden = True

    def __init__(self, fn: Callable[[Tensor, Tensor], Tensor]):
        if not callable(fn):
            raise TypeError(f"ScoreFunction(fn): fn must be callable, got {type(fn).__name__}.")
        self.fn = fn
        super().__init__(fn if _hashable(fn) else id(fn))

    def check(self, query_dim, key_dim, heads):
        pass

    def scores(self, query, key):
        scores = self.fn(query, key)
        if tuple(scores.shape[-2:]) != (query.shape[-2], key.shape[-2]):
            raise ValueError(
                f"{self}: fn returned shape {tuple(scores.shape)} for {query.shape[-2]} queries and "
                f"{key.shape[-2]} keys; it takes (..., N, d) and (..., M, d) to scores (..., N, M)."
            )
        return scores

    def pairs(self, query, key):
        return self.fn(query[..., None, :], key[..., None, :]).squeeze(-1).squeeze(-1)

    def __repr__(self):
        return f"ScoreFunction({getattr(self.fn, '__name__', type(self.fn).__name__)})"
