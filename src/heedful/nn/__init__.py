"""Layers, a few lines each over `attend`: the docstring opens with the formula, `forward` reads like it."""

from __future__ import annotations

from .attention import Attention
from .convolution import Conv1d, Conv2d
from .graph import (
    Dropout,
    GATConv,
    GATv2Conv,
    GCNConv,
    GraphConv,
    GraphTransformerConv,
    Jointly,
    MessagePassing,
    dropout,
    laplacian_positions,
    product,
    readout,
)
from .norms import BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RMSNorm, moments_over, normalize_over
from .occupied import Occupied
from .patches import PatchEmbed, patchify, unpatchify
from .pooling import RelativeMaxPool
from .positions import AlibiPosition, LearnedPositions, RelativePosition, SinusoidalPositions, T5Position
from .recurrent import GRU, LSTM, ElmanRNN
from .relative_convolution import (
    RelativeAttention,
    convolution_from_relative_attention,
    relative_attention_from_convolution,
)
from .relative_plane import RelativeAttention2d
from .transformer import FeedForward, TransformerBlock

__all__ = [
    "GRU",
    "LSTM",
    "AlibiPosition",
    "Attention",
    "BatchNorm",
    "Conv1d",
    "Conv2d",
    "Dropout",
    "ElmanRNN",
    "FeedForward",
    "GATConv",
    "GATv2Conv",
    "GCNConv",
    "GraphConv",
    "GraphTransformerConv",
    "GroupNorm",
    "InstanceNorm",
    "Jointly",
    "LayerNorm",
    "LearnedPositions",
    "MessagePassing",
    "Occupied",
    "PatchEmbed",
    "RMSNorm",
    "RelativeAttention",
    "RelativeAttention2d",
    "RelativeMaxPool",
    "RelativePosition",
    "SinusoidalPositions",
    "T5Position",
    "TransformerBlock",
    "convolution_from_relative_attention",
    "dropout",
    "laplacian_positions",
    "moments_over",
    "normalize_over",
    "patchify",
    "product",
    "readout",
    "relative_attention_from_convolution",
    "unpatchify",
]
