"""GPT: a transformer that predicts the next token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..attention import Alibi, Rotary
from ..attention.neighbors import Neighbors
from ..attention.position import Position
from ..attention.similarity import Similarity
from ..nn import (
    Dropout,
    LearnedPositions,
    RelativePosition,
    SinusoidalPositions,
    T5Position,
    TransformerBlock,
)
from ..nn.checks import check_choice, check_count, check_share
from ..nn.transformer import Activation, Norm, make_norm
from ..phrases import as_neighbors
from .decoding import Decoder, fits
from .generation import Generates
from .maps import attention_maps
from .model import Model
from .vocabulary import cross_entropy, look_up

SHRUNK = {"all": ("attention", "feed_forward"), "attention": ("attention",), "none": ()}
POSITIONS = ("rotary", "learned", "sinusoidal", "alibi", "relative", "t5", "none")


class State(NamedTuple):
    """What decoding remembers: how many tokens went by, and what each block heard."""

    length: int
    blocks: tuple


class GPT(Generates, Model):
    r"""p(x_{t+1} | x_≤t) = softmax(W norm(h_L)),   h_l = block_l(h_{l−1}),   h_0 = E[x] (+ positions)

    Args:
        vocabulary: how many different tokens there are.
        layers, heads, dim: how deep, how many ways to listen, how wide.
        block: how many tokens it is trained on at once; `learned` positions reach no further.
        position: "rotary", "learned", "sinusoidal", "alibi", "relative", "t5" or "none".
        norm, activation, kv_heads, hidden, bias, eps, learned_scale: as in `TransformerBlock`.
        similarity: "softmax", "elu", "polynomial(degree=2)" …; kernels decode with a state of constant size.
        neighbors: "causal", or narrower: "causal & window(64)".
        dropout: of embeddings, of attention weights and of what each branch adds.
        tied: the last matrix is the embedding, as in GPT-2.
        shrunk: which branches begin small, "all" (as in GPT-2), "attention" or "none".

    Weights begin as N(0, 0.02²), those that end a branch that is shrunk as N(0, 0.02² / 2·layers).

    >>> import torch
    >>> from heedful.models import GPT
    >>> gpt = GPT.of_size("nano", vocabulary=87)
    >>> tokens = torch.randint(87, (2, 129))
    >>> gpt(tokens[:, :-1]).shape                                # logits of the next token
    torch.Size([2, 128, 87])
    >>> loss = gpt.loss(tokens[:, :-1], tokens[:, 1:])
    >>> text = gpt.generate([4, 8, 15], length=20, temperature=0.7, top_p=0.9, seed=0)
    >>> len(text)
    23
    """

    sizes: ClassVar[dict[str, dict[str, Any]]] = {
        "nano": {"layers": 3, "heads": 3, "dim": 48},
        "micro": {"layers": 4, "heads": 4, "dim": 128},
        "mini": {"layers": 6, "heads": 6, "dim": 384},
        "gpt2": {
            "layers": 12,
            "heads": 12,
            "dim": 768,
            "block": 1024,
            "vocabulary": 50257,
            "position": "learned",
            "norm": "layer",
            "tied": True,
        },
    }

    def __init__(
        self,
        vocabulary: int,
        *,
        layers: int = 6,
        heads: int = 6,
        dim: int = 384,
        block: int = 128,
        kv_heads: int | None = None,
        hidden: int | None = None,
        position: Literal["rotary", "learned", "sinusoidal", "alibi", "relative", "t5", "none"] = "rotary",
        norm: Norm = "rms",
        activation: Activation = "gelu_tanh",
        similarity: Similarity | str = "softmax",
        neighbors: Neighbors | str = "causal",
        dropout: float = 0.1,
        bias: bool = True,
        tied: bool = False,
        eps: float | None = None,
        learned_scale: bool = False,
        shrunk: Literal["all", "attention", "none"] = "all",
    ):
        super().__init__()
        check_count("GPT", vocabulary=vocabulary, layers=layers, heads=heads, dim=dim, block=block)
        check_choice("GPT", "position", position, POSITIONS)
        check_choice("GPT", "shrunk", shrunk, SHRUNK)
        check_share("GPT", dropout=dropout)
        heard: Neighbors = as_neighbors(neighbors)
        if (heard.facts(1 << 30, 1 << 30).interval or (-1, 0))[0] < 0:
            raise ValueError(
                f"GPT(neighbors={heard}): it would see the tokens it is to predict; "
                f'use "causal", or "causal & window(w)".'
            )
        self.vocabulary, self.block, self.shrunk = vocabulary, block, shrunk
        self.embedding = nn.Embedding(vocabulary, dim)
        self.positions = {
            "learned": lambda: LearnedPositions(block, dim),
            "sinusoidal": lambda: SinusoidalPositions(dim),
        }.get(position, lambda: None)()
        self.dropout = Dropout(dropout)
        self.blocks: Any = nn.ModuleList(
            TransformerBlock(
                dim,
                heads,
                kv_heads,
                hidden=hidden,
                activation=activation,
                norm=norm,
                eps=eps,
                dropout=dropout,
                bias=bias,
                similarity=similarity,
                neighbors=heard,
                position=_position(position, heads, block),
                learned_scale=learned_scale,
            )
            for _ in range(layers)
        )
        self.norm = make_norm(norm, dim, eps)
        self.head = None if tied else nn.Linear(dim, vocabulary, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for block in self.blocks:
            for branch in SHRUNK[self.shrunk]:
                last = getattr(block, branch).output
                nn.init.normal_(last.weight, std=0.02 / (2 * len(self.blocks)) ** 0.5)

    @classmethod
    def of_size(cls, size: str, vocabulary: int | None = None, **changes) -> GPT:
        """One of the known sizes: "nano", "micro", "mini", or "gpt2", the smallest GPT-2.

        >>> GPT.of_size("gpt2").parameter_count
        124439808
        """
        check_choice("GPT.of_size", "size", size, cls.sizes)
        settings = {**cls.sizes[size], **changes}
        if vocabulary is not None:
            settings["vocabulary"] = vocabulary
        if "vocabulary" not in settings:
            raise ValueError(f"GPT.of_size({size!r}): say how large the vocabulary is, vocabulary=….")
        return cls(**settings)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the token after each, (..., length) → (..., length, vocabulary)."""
        x = self._embed(tokens, 0)
        # The values, not the list: a compiler then looks after the whole model at once.
        for block in self.blocks._modules.values():
            x = block(x)
        return self.logits(x)

    def loss(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """Mean cross-entropy of the targets, in nats a token; the tokens moved by one unless given.

        Targets of −100 do not count.
        """
        if targets is None:
            tokens, targets = tokens[..., :-1], tokens[..., 1:]
        logits = self(tokens)
        if logits.dtype in (torch.float16, torch.bfloat16):
            logits = logits.float()
        return cross_entropy("GPT.loss", logits, targets)

    def attention_maps(self, tokens: Tensor) -> Tensor:
        """How much token i heeds token j, (layers, ..., heads, tokens, tokens); without their dropout.

        >>> gpt = GPT.of_size("nano", vocabulary=87)
        >>> gpt.attention_maps(torch.tensor([4, 8, 15])).shape
        torch.Size([3, 3, 3, 3])
        """
        return attention_maps(self.blocks, self._embed(tokens, 0))

    def step(self, tokens: Tensor, state: State | None = None, *, last: bool = False) -> tuple[Tensor, State]:
        """Logits after new tokens (..., new), and the state to pass next time; None begins a text.

        Feeding a text in pieces gives what `forward` gives in eval mode. `last=True` returns the logits after
        the last token only.
        """
        before = 0 if state is None else state.length
        x = self._embed(tokens, before)
        heard = []
        for n, block in enumerate(self.blocks):
            x, after = block.step(x, None if state is None else state.blocks[n])
            heard.append(after)
        x = x[..., -1:, :] if last else x
        return self.logits(x), State(before + tokens.shape[-1], tuple(heard))

    def decoder(self, state: State, room: int) -> Callable[[Tensor], Tensor]:
        if not fits(self):
            return super().decoder(state, room)
        if self.embedding.weight.device.type == "cuda":
            from .decoding_cuda import recorded

            return recorded(self, state, room) or Decoder(self, state, room)
        return Decoder(self, state, room)

    def parameter_groups(self, decay: float) -> list[dict[str, Any]]:
        """For an optimizer: weights of linear layers with weight decay, everything else without.

        >>> gpt = GPT.of_size("nano", vocabulary=87)
        >>> optimizer = torch.optim.AdamW(gpt.parameter_groups(decay=0.1), lr=5e-4, betas=(0.9, 0.95))
        """
        linear = {id(module.weight) for module in self.modules() if isinstance(module, nn.Linear)}
        parts = [[p for p in self.parameters() if (id(p) in linear) == decays] for decays in (True, False)]
        return [{"params": parts[0], "weight_decay": decay}, {"params": parts[1], "weight_decay": 0.0}]

    def _embed(self, tokens: Tensor, start: int) -> Tensor:
        if not isinstance(tokens, Tensor):
            raise TypeError(f"GPT: tokens must be a tensor of whole numbers, got {type(tokens).__name__}.")
        if tokens.is_floating_point() or tokens.dtype == torch.bool:
            raise TypeError(f"GPT: tokens are whole numbers, got {tokens.dtype}.")
        x = look_up("GPT", self.embedding, tokens)
        if self.positions is not None:
            x = self.positions(x, start)
        return self.dropout(x)

    def logits(self, x: Tensor) -> Tensor:
        weight = self.embedding.weight if self.head is None else self.head.weight
        return F.linear(self.norm(x), weight)


def _position(kind: str, heads: int, block: int) -> Position | None:
    """What attention knows of distance; a position that learns is each block's own."""
    if kind == "rotary":
        return Rotary()
    if kind == "alibi":
        return Alibi()
    if kind == "relative":
        return RelativePosition(heads, block)
    if kind == "t5":
        return T5Position(heads, bidirectional=False)
    return None
