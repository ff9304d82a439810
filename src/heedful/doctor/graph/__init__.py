"""What the autograd graph behind a loss tells: its factors, its kind, targets, activations, attention.

Nodes keep what their backward pass needs (`_saved_…`): a stranger's code is understood without hooks.
"""

from .activations import attentions, entropy, normalisers, relus, saturations, spread
from .losses import MEAN, PROBABILITIES, Loss, broadcast, crossed_view, mixed_view, softmax_before, take_apart
from .nodes import first_tensor, nearest, units_axis, walk
from .objective import Objective, objective

__all__ = [
    "MEAN",
    "PROBABILITIES",
    "Loss",
    "Objective",
    "attentions",
    "broadcast",
    "crossed_view",
    "entropy",
    "first_tensor",
    "mixed_view",
    "nearest",
    "normalisers",
    "objective",
    "relus",
    "saturations",
    "softmax_before",
    "spread",
    "take_apart",
    "units_axis",
    "walk",
]
