"""One attention operator for sequences, images and graphs, and a planner that explains itself.

>>> import torch
>>> from heedful import attend, Causal
>>> x = torch.randn(2, 4, 10, 8)               # batch, heads, length, dim
>>> attend(x, x, x, neighbors=Causal()).shape
torch.Size([2, 4, 10, 8])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


_ROOMS = ("attention", "data", "doctor", "graphs", "models", "nn", "training")


def __getattr__(name: str):
    # The operator needs torch, which takes a second to load; `heedful --version` answers without.
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(".graphs" if name == "Graph" else ".attention", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__")), *_ROOMS})
