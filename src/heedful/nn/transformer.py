"""The transformer block: listen, then think, each beside a skip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from ..attention.neighbors import Neighbors
from ..attention.position import Position
from ..attention.similarity import Similarity
from ..graphs import Graph
from .attention import Attention, Memory
from .checks import check_choice, check_count
from .graph.features import Dropout

Activation = Literal["gelu", "gelu_tanh", "relu", "swiglu"]
Norm = Literal["layer", "rms"]


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _swiglu(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, -1)
    return F.silu(gate) * value


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": F.relu,
    "swiglu": _swiglu,
}
_NORMS: dict[str, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}
_EPSILON = {"layer": 1e-5, "rms": 1e-6}


def make_norm(kind: Norm, dim: int, eps: float | None = None) -> nn.Module:
    """LayerNorm (ε = 1e-5) or RMSNorm (ε = 1e-6) by name."""
    check_choice("TransformerBlock", "norm", kind, _NORMS)
    return _NORMS[kind](dim, eps=_EPSILON[kind] if eps is None else eps)


class FeedForward(nn.Module):
    """out = W₂ σ(W₁ x + b₁) + b₂, σ one of gelu, gelu_tanh, relu; or swiglu: W₂ (silu(G x) ⊙ V x).

    `hidden` is 4·dim unless given; 8/3·dim for swiglu, of three matrices, rounded up to a multiple of 8.

    >>> import torch, heedful
    >>> heedful.nn.FeedForward(32, activation="swiglu")(torch.randn(2, 10, 32)).shape
    torch.Size([2, 10, 32])
    """

    def __init__(
        self,
        dim: int,
        hidden: int | None = None,
        *,
        activation: Activation = "gelu",
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__()
        check_choice("FeedForward", "activation", activation, ACTIVATIONS)
        check_count("FeedForward", dim=dim, hidden=4 if hidden is None else hidden)
        gated = activation == "swiglu"
        if hidden is None:
            hidden = -(-8 * dim // 24) * 8 if gated else 4 * dim
        self.activation = activation
        self.input = nn.Linear(dim, 2 * hidden if gated else hidden, bias=bias)
        self.dropout = Dropout(dropout)
        self.output = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.dropout(ACTIVATIONS[self.activation](self.input(x))))

    def extra_repr(self) -> str:
        return f"activation={self.activation}"


class TransformerBlock(nn.Module):
    """x ← x + attention(norm(x)); x ← x + feed_forward(norm(x)).   With order="post": x ← norm(x + …).

    With `cross=True` it listens to a context in between: a decoder's block.

    Args:
        dim, heads, kv_heads: as in `Attention`; `similarity`, `neighbors`, `position`, `head_dim` too.
        hidden, activation: as in `FeedForward`.
        norm: "layer" or "rms"; `eps` is 1e-5 or 1e-6 unless given.
        order: "pre" norms what a branch hears, "post" the sum (the original transformer).
        dropout: of what each branch adds. `attention_dropout` (of attention weights) equals it unless given;
            `hidden_dropout` (inside the feed-forward) is 0.

    >>> import torch, heedful
    >>> block = heedful.nn.TransformerBlock(64, heads=4, norm="rms", activation="swiglu", neighbors="causal")
    >>> block(torch.randn(2, 10, 64)).shape
    torch.Size([2, 10, 64])
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        kv_heads: int | None = None,
        *,
        hidden: int | None = None,
        activation: Activation = "gelu",
        norm: Norm = "layer",
        order: Literal["pre", "post"] = "pre",
        eps: float | None = None,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        hidden_dropout: float = 0.0,
        bias: bool = True,
        head_dim: int | None = None,
        similarity: Similarity | str = "softmax",
        neighbors: Neighbors | Graph | str = "everyone",
        position: Position | None = None,
        learned_scale: bool = False,
        cross: bool = False,
        context_dim: int | None = None,
    ):
        super().__init__()
        check_choice("TransformerBlock", "order", order, ("pre", "post"))
        self.order = order
        shared: dict[str, Any] = {
            "dropout": dropout if attention_dropout is None else attention_dropout,
            "bias": bias,
            "head_dim": head_dim,
            "similarity": similarity,
            "learned_scale": learned_scale,
        }
        self.attention_norm = make_norm(norm, dim, eps)
        self.attention = Attention(dim, heads, kv_heads, neighbors=neighbors, position=position, **shared)
        self.cross_norm = make_norm(norm, dim, eps) if cross else None
        self.cross = Attention(dim, heads, kv_heads, context_dim=context_dim, **shared) if cross else None
        self.feed_forward_norm = make_norm(norm, dim, eps)
        self.feed_forward = FeedForward(dim, hidden, activation=activation, dropout=hidden_dropout, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        context: Tensor | Memory | None = None,
        *,
        neighbors: Neighbors | Graph | None = None,
        context_neighbors: Neighbors | Graph | None = None,
    ) -> Tensor:
        """x (..., length, dim), which may listen to a context (..., other length, dim), too.

        `neighbors` narrows who hears whom in x, `context_neighbors` in the context, for this call: padding as
        a `Mask`, packed sequences as `Segments`.
        """
        x = self.beside(x, self.attention_norm, lambda z: self.attention(z, neighbors=neighbors))
        x = self._listen(x, context, context_neighbors)
        return self.beside(x, self.feed_forward_norm, self.feed_forward)

    def step(
        self,
        x: Tensor,
        state: Any = None,
        context: Tensor | Memory | None = None,
        *,
        context_neighbors: Neighbors | Graph | None = None,
    ) -> tuple[Tensor, Any]:
        """The next tokens x (..., new, dim), and the state to pass next time; see `Attention.step`.

        A decoder's block projects its context in every step, unless it gets `block.cross.remember(context)`.
        """

        def listen(z):
            nonlocal state
            out, state = self.attention.step(z, state)
            return out

        x = self.beside(x, self.attention_norm, listen)
        x = self._listen(x, context, context_neighbors)
        return self.beside(x, self.feed_forward_norm, self.feed_forward), state

    def _listen(self, x: Tensor, context, neighbors) -> Tensor:
        if self.cross is None or self.cross_norm is None:
            if context is not None:
                raise ValueError("TransformerBlock: it got a context, but was not built with cross=True.")
            return x
        if context is None:
            raise ValueError("TransformerBlock(cross=True): listens to a context; pass one.")
        cross = self.cross
        return self.beside(x, self.cross_norm, lambda z: cross(z, context, neighbors=neighbors))

    def beside(self, x: Tensor, norm: nn.Module, branch: Callable[[Tensor], Tensor]) -> Tensor:
        """A branch beside the skip."""
        if self.order == "pre":
            return x + self.dropout(branch(norm(x)))
        return norm(x + self.dropout(branch(x)))

    def extra_repr(self) -> str:
        return f"order={self.order}"
