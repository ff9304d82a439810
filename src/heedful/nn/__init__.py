"""Layers, a few lines each over `attend`: the docstring opens with the formula, `forward` reads like it."""

from __future__ import annotations

from .attention import Attention
from .norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm, moments_over, normalize_over
from .patches import PatchEmbed, patchify, unpatchify
from .positions import AlibiPosition, LearnedPositions, RelativePosition, SinusoidalPositions, T5Position
from .recurrent import GRU, LSTM, ElmanRNN
from .transformer import FeedForward, TransformerBlock

__all__ = [
    "GRU",
    "LSTM",
    "AlibiPosition",
    "Attention",
    "BatchNorm",
    "ElmanRNN",
    "FeedForward",
    "GroupNorm",
    "InstanceNorm",
    "LayerNorm",
    "LearnedPositions",
    "PatchEmbed",
    "RMSNorm",
    "RelativePosition",
    "SinusoidalPositions",
    "T5Position",
    "TransformerBlock",
    "moments_over",
    "normalize_over",
    "patchify",
    "unpatchify",
]
