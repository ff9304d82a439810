"""The operator: one line of mathematics, many ways to evaluate it, and a planner that chooses."""

from .decode import step
from .neighbors import Causal, Everyone, Global, Mask, Neighbors, Segments, Window
from .operator import attend, explain
from .plan import Plan
from .position import Alibi, Position, Relative, Rotary, T5Buckets
from .similarity import (
    Additive,
    Argmax,
    EluKernel,
    FeatureMap,
    Polynomial,
    RandomFeatures,
    ScoreFunction,
    Similarity,
    Softmax,
    Uniform,
)

__all__ = [
    "Additive",
    "Alibi",
    "Argmax",
    "Causal",
    "EluKernel",
    "Everyone",
    "FeatureMap",
    "Global",
    "Mask",
    "Neighbors",
    "Plan",
    "Polynomial",
    "Position",
    "RandomFeatures",
    "Relative",
    "Rotary",
    "ScoreFunction",
    "Segments",
    "Similarity",
    "Softmax",
    "T5Buckets",
    "Uniform",
    "Window",
    "attend",
    "explain",
    "step",
]
