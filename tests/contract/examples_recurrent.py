"""Recurrent layers and the norms, and the models over them."""

from __future__ import annotations

import torch

from heedful.models import RNN
from heedful.nn import (
    GRU,
    LSTM,
    BatchNorm,
    ElmanRNN,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    RMSNorm,
)

from .example import Example


def sequence(dtype):
    return (torch.randn(3, 6, 4, dtype=dtype),)


def tokens(dtype):
    return (torch.randint(11, (3, 6)),)


def images(dtype):
    return (torch.randn(3, 6, 5, 4, dtype=dtype),)


NORMS = {
    "batch norm": lambda fused: BatchNorm(6, fused=fused),
    "instance norm": lambda fused: InstanceNorm(6, affine=True, fused=fused),
    "group norm": lambda fused: GroupNorm(3, 6, fused=fused),
    "layer norm": lambda fused: LayerNorm(4, fused=fused),
    "RMS norm": lambda fused: RMSNorm(4, fused=fused),
}

EXAMPLES = [
    Example("Elman", lambda: ElmanRNN(4, 5, 2), sequence, (3, 6, 5), causal=True),
    Example(
        "Elman by hand, truncated",
        lambda: ElmanRNN(4, 5, 2, activation="relu", backward="by hand", truncate=3),
        sequence,
        (3, 6, 5),
        causal=True,
    ),
    Example("Elman truncated", lambda: ElmanRNN(4, 5, truncate=2), sequence, (3, 6, 5), causal=True),
    # torch's compiler steps around torch's own recurrent layers, so that they do not make one graph
    Example("LSTM", lambda: LSTM(4, 5, 2), sequence, (3, 6, 5), causal=True, compiles=False),
    Example("GRU", lambda: GRU(4, 5, 2), sequence, (3, 6, 5), causal=True, compiles=False),
    Example("RNN", lambda: RNN(11, hidden=8, layers=2, dropout=0.1), tokens, (3, 6, 11), causal=True),
    Example("RNN of vectors", lambda: RNN(inputs=4, outputs=2, hidden=8), sequence, (3, 6, 2), causal=True),
    Example(
        "RNN that predicts the last",
        lambda: RNN(11, outputs=2, hidden=8, kind="gru", predict="last"),
        tokens,
        (3, 2),
        compiles=False,
    ),
    *(
        Example(f"{name}, {how}", lambda make=make, fused=fused: make(fused), images, (3, 6, 5, 4))
        for name, make in NORMS.items()
        for fused, how in ((True, "kernel"), (False, "formula"))
    ),
]
