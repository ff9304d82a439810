"""Attention, transformer blocks, positions, patches, GPT."""

from __future__ import annotations

import torch

from heedful import Alibi, FeatureMap, Rotary
from heedful.models import GPT, GPTStep
from heedful.nn import (
    AlibiPosition,
    Attention,
    FeedForward,
    LearnedPositions,
    PatchEmbed,
    RelativePosition,
    SinusoidalPositions,
    T5Position,
    TransformerBlock,
)

from .example import Example


def sequence(dtype):
    return (torch.randn(2, 7, 16, dtype=dtype),)


def with_context(dtype):
    return torch.randn(2, 7, 16, dtype=dtype), torch.randn(1, 5, 16, dtype=dtype)


def text(_):
    return (torch.randint(11, (2, 9)),)


def moved(inputs, permutation):
    """Nodes of one unbatched sequence, relabelled."""
    return (inputs[0][permutation],)


class Features(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = torch.nn.Linear(dim, 6)

    def forward(self, x):
        return self.linear(x).exp()


def gpt(**changes):
    return lambda: GPT(11, **{"layers": 2, "heads": 2, "dim": 16, "block": 12, "dropout": 0.0, **changes})


def one_token(dtype):
    state = tuple(torch.randn(2, 2, 2, 6, 8, dtype=dtype) for _ in range(2))
    return torch.randint(11, (2, 1)), torch.tensor(3), state


EXAMPLES = [
    Example("attention", lambda: Attention(16, 4), sequence, (2, 7, 16)),
    Example(
        "attention, one sequence",
        lambda: Attention(16, 4),
        lambda dtype: (torch.randn(7, 16, dtype=dtype),),
        (7, 16),
        batch=False,
        equivariant=moved,
    ),
    Example(
        "attention, causal, grouped, rotary",
        lambda: Attention(16, 4, 2, neighbors="causal", position=Rotary(), bias=False),
        sequence,
        (2, 7, 16),
        causal=True,
    ),
    Example(
        "attention, kernel that learns",
        lambda: Attention(16, 2, similarity=FeatureMap(Features(8), positive=True), neighbors="causal"),
        sequence,
        (2, 7, 16),
        causal=True,
    ),
    Example(
        "attention, elu, alibi",
        lambda: Attention(16, 4, similarity="elu", neighbors="causal", position=Alibi()),
        sequence,
        (2, 7, 16),
        causal=True,
    ),
    Example("attention, learned scale", lambda: Attention(16, 4, learned_scale=True), sequence, (2, 7, 16)),
    Example(
        "attention, relative",
        lambda: Attention(16, 4, position=RelativePosition(4, 3)),
        sequence,
        (2, 7, 16),
    ),
    Example("attention, t5", lambda: Attention(16, 4, position=T5Position(4, 8)), sequence, (2, 7, 16)),
    Example(
        "attention, alibi that learns",
        lambda: Attention(16, 4, position=AlibiPosition(4)),
        sequence,
        (2, 7, 16),
    ),
    Example("cross-attention", lambda: Attention(16, 4), with_context, (2, 7, 16)),
    Example(
        "cross-attention, another width",
        lambda: Attention(16, 4, context_dim=10),
        lambda dtype: (torch.randn(2, 7, 16, dtype=dtype), torch.randn(1, 5, 10, dtype=dtype)),
        (2, 7, 16),
    ),
    Example("feed forward", lambda: FeedForward(16), sequence, (2, 7, 16)),
    Example(
        "feed forward, gated",
        lambda: FeedForward(16, 24, activation="swiglu", dropout=0.1),
        sequence,
        (2, 7, 16),
    ),
    Example("block", lambda: TransformerBlock(16, 4, dropout=0.1), sequence, (2, 7, 16)),
    Example(
        "block, post, relu",
        lambda: TransformerBlock(16, 4, order="post", activation="relu"),
        sequence,
        (2, 7, 16),
    ),
    Example(
        "block of a llama",
        lambda: TransformerBlock(
            16,
            4,
            2,
            norm="rms",
            activation="swiglu",
            bias=False,
            neighbors="causal",
            position=Rotary(interleaved=False),
        ),
        sequence,
        (2, 7, 16),
        causal=True,
    ),
    Example(
        "block of a decoder",
        lambda: TransformerBlock(16, 4, cross=True, neighbors="causal"),
        with_context,
        (2, 7, 16),
        causal=True,
    ),
    Example("relative position", lambda: RelativePosition(4, 3), lambda _: (7, 9), (4, 7, 9), batch=False),
    Example("t5 position", lambda: T5Position(4, 8), lambda _: (7, 9), (4, 7, 9), batch=False),
    Example("alibi position", lambda: AlibiPosition(4), lambda _: (7, 9), (4, 7, 9), batch=False),
    Example(
        "learned positions",
        lambda: LearnedPositions(9, 16),
        sequence,
        (2, 7, 16),
        causal=True,
    ),
    Example("sinusoidal positions", lambda: SinusoidalPositions(16), sequence, (2, 7, 16), causal=True),
    Example(
        "patch embedding",
        lambda: PatchEmbed((8, 12), 4, 3, 16),
        lambda dtype: (torch.randn(2, 3, 8, 12, dtype=dtype),),
        (2, 6, 16),
    ),
    Example("step of a gpt", lambda: GPTStep(gpt()(), room=6), one_token, (2, 1, 11), batch=False),
    Example("gpt", gpt(), text, (2, 9, 11), causal=True),
    Example(
        "gpt, layer norm, learned positions, tied",
        gpt(norm="layer", position="learned", tied=True),
        text,
        (2, 9, 11),
        causal=True,
    ),
    Example("gpt, t5, dropout", gpt(position="t5", dropout=0.1), text, (2, 9, 11), causal=True),
    Example(
        "gpt, relative, window",
        gpt(position="relative", neighbors="causal & window(3)"),
        text,
        (2, 9, 11),
        causal=True,
    ),
    Example(
        "gpt, polynomial, alibi",
        gpt(similarity="polynomial(degree=2)", position="alibi"),
        text,
        (2, 9, 11),
        causal=True,
    ),
    Example(
        "gpt, elu, sinusoidal, swiglu",
        gpt(similarity="elu", position="sinusoidal", activation="swiglu"),
        text,
        (2, 9, 11),
        causal=True,
    ),
    Example(
        "gpt, no positions, learned scale",
        gpt(position="none", learned_scale=True, kv_heads=1),
        text,
        (2, 9, 11),
        causal=True,
    ),
]
