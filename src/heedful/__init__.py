"""One attention operator for sequences, images and graphs, and a planner that explains itself.

>>> import torch
>>> from heedful import attend, Causal
>>> x = torch.randn(2, 4, 10, 8)               # batch, heads, length, dim
>>> attend(x, x, x, neighbors=Causal()).shape
torch.Size([2, 4, 10, 8])
"""

from .attention import (
    Additive,
    Alibi,
    Argmax,
    Causal,
    EluKernel,
    Everyone,
    FeatureMap,
    Global,
    Mask,
    Plan,
    Polynomial,
    RandomFeatures,
    Relative,
    Rotary,
    ScoreFunction,
    Segments,
    Softmax,
    T5Buckets,
    Uniform,
    Window,
    attend,
    explain,
    step,
)
from .graphs import Graph

__version__ = "0.1.0"

__all__ = [
    "Additive",
    "Alibi",
    "Argmax",
    "Causal",
    "EluKernel",
    "Everyone",
    "FeatureMap",
    "Global",
    "Graph",
    "Mask",
    "Plan",
    "Polynomial",
    "RandomFeatures",
    "Relative",
    "Rotary",
    "ScoreFunction",
    "Segments",
    "Softmax",
    "T5Buckets",
    "Uniform",
    "Window",
    "attend",
    "explain",
    "step",
]
