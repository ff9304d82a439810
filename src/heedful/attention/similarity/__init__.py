"""How alike a listener's query and a speaker's key are: sim(q_i, k_j), and what the planner may know of it.

A similarity with a *log form* returns log sim from `scores` (so the largest score can be subtracted before
the exponential); a *kernel* returns sim itself, and may have a finite feature map, sim(q, k) = φ(q)·φ(k).
`prepare` is applied once to whole tensors: it folds scales in and rescales kernels to where float32 neither
overflows nor vanishes. That is free: the output is a weighted mean, so a factor common to a row cancels.
"""

from .additive import Additive
from .base import Similarity, per_head
from .dot import Argmax, Softmax
from .feature_map import EluKernel, FeatureMap
from .function import ScoreFunction
from .polynomial import Polynomial
from .random_features import RandomFeatures
from .uniform import Uniform

__all__ = [
    "Additive",
    "Argmax",
    "EluKernel",
    "FeatureMap",
    "Polynomial",
    "RandomFeatures",
    "ScoreFunction",
    "Similarity",
    "Softmax",
    "Uniform",
    "per_head",
]
