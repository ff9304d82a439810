"""Multi-head attention over `attend`: self or cross, trained whole or decoded step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.compiler import is_dynamo_compiling
from torch.nn import functional as F

from ..attention import Everyone, Softmax, attend, explain, step
from ..attention.neighbors import Neighbors
from ..attention.position import Position
from ..attention.settled import attend_settled, settle
from ..attention.similarity import Similarity
from ..graphs import Graph
from ..phrases import as_neighbors, as_similarity
from .checks import check_count, check_share
from .learning import Similar, check_position

if TYPE_CHECKING:
    from ..attention.plan import Plan
    from ..attention.strategies import CacheState, ScanState


class Memory(NamedTuple):
    """A context as cross-attention knows it: keys and values, (..., heads, length, head_dim)."""

    key: Tensor
    value: Tensor


class Attention(Similar):
    r"""out_i = W_o concat_h Σ_{j∈N(i)} α_ij W_v x_j,   α_ij ∝ sim(W_q x_i, W_k x_j; i−j)

    Args:
        dim: width of the tokens.
        heads: how many heads; each is `head_dim` wide, dim / heads unless given.
        kv_heads: how many heads keys and values have, shared by query heads in groups; as many unless given.
        similarity: a `Similarity`, or text such as "softmax", "elu", "polynomial(degree=2)".
        neighbors: a `Neighbors`, or text such as "causal", "causal & window(256)".
        position: a `Position` of the operator (`Rotary`, `Alibi` …), or one that learns (`RelativePosition`,
            `T5Position`, `AlibiPosition`).
        dropout: share of attention weights zeroed in training.
        context_dim: width of what cross-attention listens to, if it is not `dim`.
        learned_scale: learn the inverse temperature β of exp(β q·k), one a head, from 1/√head_dim on.

    >>> import torch, heedful
    >>> layer = heedful.nn.Attention(64, heads=4, kv_heads=2, neighbors="causal", position=heedful.Rotary())
    >>> x = torch.randn(2, 10, 64)                       # batch, length, dim
    >>> whole = layer(x)
    >>> first, state = layer.step(x[:, :9])              # the same, decoded
    >>> last, state = layer.step(x[:, 9:], state)
    >>> torch.allclose(torch.cat([first, last], 1), whole, atol=1e-5)
    True
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        kv_heads: int | None = None,
        *,
        similarity: Similarity | str = "softmax",
        neighbors: Neighbors | Graph | str = "everyone",
        position: Position | None = None,
        dropout: float = 0.0,
        bias: bool = True,
        head_dim: int | None = None,
        context_dim: int | None = None,
        learned_scale: bool = False,
    ):
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        check_count("Attention", dim=dim, heads=heads, kv_heads=kv_heads)
        given = {"head_dim": head_dim, "context_dim": context_dim}
        check_count("Attention", **{name: n for name, n in given.items() if n is not None})
        check_share("Attention", dropout=dropout)
        if heads % kv_heads:
            raise ValueError(
                f"Attention: heads={heads}, kv_heads={kv_heads}; the first must be a multiple of the second."
            )
        if head_dim is None and dim % heads:
            raise ValueError(
                f"Attention: dim={dim} does not divide into heads={heads}; change one, or give head_dim."
            )
        check_position("Attention", position)
        self.dim, self.heads, self.kv_heads = dim, heads, kv_heads
        self.head_dim = dim // heads if head_dim is None else head_dim
        self.neighbors, self.position, self.dropout = as_neighbors(neighbors), position, dropout
        chosen = as_similarity(similarity)
        self._take("Attention", self._learned_scale(chosen) if learned_scale else chosen)
        # One product gives queries, keys and values, unless the latter come from tokens of another width.
        query, pair = heads * self.head_dim, 2 * kv_heads * self.head_dim
        self.context_dim = context_dim
        self.query_key_value = nn.Linear(dim, query + pair if context_dim is None else query, bias=bias)
        self.key_value = None if context_dim is None else nn.Linear(context_dim, pair, bias=bias)
        self.output = nn.Linear(query, dim, bias=bias)

    def _learned_scale(self, similarity: Similarity) -> Softmax:
        """Softmax with a scale for each head that learns."""
        scale = getattr(similarity, "scale", None)
        if not isinstance(similarity, Softmax) or isinstance(scale, Tensor):
            raise ValueError(
                f"Attention(learned_scale=True): learns the β of Softmax(), got similarity={similarity}."
            )
        start = self.head_dim**-0.5 if scale is None else scale
        return Softmax(nn.Parameter(torch.full((self.heads,), start)))

    def __setattr__(self, name: str, value) -> None:
        super().__setattr__(name, value)
        if name in ("_similarity", "scale", "neighbors", "position"):
            self._settle()

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._settle()

    def _settle(self) -> None:
        """One word for what was chosen, for compilers; a scale or a position that learns has none."""
        own = vars(self)
        learns = self._parameters.get("scale") is not None or "position" in self._modules
        chosen = (own.get("_similarity"), own.get("neighbors"), own.get("position"))
        self._word = None if learns else settle(*chosen)

    def forward(
        self, x: Tensor, context: Tensor | Memory | None = None, *, neighbors: Neighbors | Graph | None = None
    ) -> Tensor:
        """x (..., length, dim) listens to itself, or to `context` (..., other length, dim).

        `neighbors` narrows who is heard, for this call: padding as a `Mask`, packed sequences as `Segments`.
        A context that is listened to many times may be passed as what `remember` makes of it.
        """
        query, key, value = self.project(x, context)
        dropout = self.dropout if self.training else 0.0
        if self._word is not None and neighbors is None and is_dynamo_compiling():
            out = attend_settled(self._word, query, key, value, dropout)
        else:
            out = attend(
                query,
                key,
                value,
                similarity=self.similarity,
                neighbors=self._heard(neighbors),
                position=self.position,
                dropout=dropout,
            )
        return self.output(self._merge(out))

    def step(
        self, x: Tensor, state: CacheState | ScanState | None = None
    ) -> tuple[Tensor, CacheState | ScanState]:
        """The next tokens x (..., new, dim) of a causal layer, and the state to pass next time; None begins.

        Feeding a sequence in pieces gives what `forward` gives in eval mode for the whole. The state is keys
        and values heard so far, or for kernels one total of constant size.
        """
        query, key, value = self.project(x)
        out, state = step(
            query,
            key,
            value,
            state,
            similarity=self.similarity,
            neighbors=self.neighbors,
            position=self.position,
        )
        return self.output(self._merge(out)), state

    def explain(self, x: Tensor, context: Tensor | None = None, **options) -> Plan:
        """The plan `forward` would follow; options are those of `heedful.explain`."""
        query, key, value = self.project(x, context)
        return explain(
            query,
            key,
            value,
            similarity=self.similarity,
            neighbors=self.neighbors,
            position=self.position,
            dropout=self.dropout if self.training else 0.0,
            **options,
        )

    def project(self, x: Tensor, context: Tensor | Memory | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (..., heads, length, head_dim)."""
        self._check("x", x, self.dim)
        if context is not None:
            memory = context if isinstance(context, Memory) else self.remember(context)
            return self._split(F.linear(x, *self._parts()[0])), *memory
        if self.key_value is not None:
            raise ValueError(
                f"Attention(context_dim={self.context_dim}): this layer listens to a context; pass one."
            )
        return self._split(self.query_key_value(x)).split([self.heads, self.kv_heads, self.kv_heads], -3)

    def remember(self, context: Tensor) -> Memory:
        """The keys and values of a context, to be passed in its place when it is listened to many times."""
        self._check("context", context, self.dim if self.context_dim is None else self.context_dim)
        pair = self._split(F.linear(context, *self._parts()[1]))
        return Memory(*pair.split([self.kv_heads, self.kv_heads], -3))

    def _parts(self) -> tuple[tuple[Tensor, Tensor | None], tuple[Tensor, Tensor | None]]:
        """Weight and bias of the queries, and of keys and values."""
        both = self.query_key_value
        if self.key_value is not None:
            return (both.weight, both.bias), (self.key_value.weight, self.key_value.bias)
        query = self.heads * self.head_dim
        bias = (None, None) if both.bias is None else (both.bias[:query], both.bias[query:])
        return (both.weight[:query], bias[0]), (both.weight[query:], bias[1])

    def _split(self, x: Tensor) -> Tensor:
        """(..., length, heads · head_dim) → (..., heads, length, head_dim)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(-2, -3)

    def _merge(self, x: Tensor) -> Tensor:
        return x.transpose(-2, -3).flatten(-2)

    def _heard(self, neighbors: Neighbors | Graph | None) -> Neighbors | Graph:
        if neighbors is None:
            return self.neighbors
        return neighbors if isinstance(self.neighbors, Everyone) else self.neighbors & neighbors

    def _check(self, name: str, x: Tensor, dim: int) -> None:
        if not isinstance(x, Tensor):
            raise TypeError(f"Attention: {name} must be a tensor, got {type(x).__name__}.")
        if x.dim() < 2 or x.shape[-1] != dim:
            raise ValueError(f"Attention: {name} has shape {tuple(x.shape)}; takes (..., length, {dim}).")

    def extra_repr(self) -> str:
        parts = [f"{self.dim}", f"heads={self.heads}"]
        if self.kv_heads != self.heads:
            parts.append(f"kv_heads={self.kv_heads}")
        parts += [f"similarity={self.similarity}", f"neighbors={self.neighbors}"]
        if self.position is not None and not isinstance(self.position, nn.Module):
            parts.append(f"position={self.position}")
        if self.dropout:
            parts.append(f"dropout={self.dropout:g}")
        return ", ".join(parts)
