"""Training as a function, checkpoints that lose nothing, many seeds at once, many processes together.

>>> from heedful.training import train, Batches, Patience, Checkpoint, Experiment, train_seeds
"""

from __future__ import annotations

from ..kernels.recording import captured
from .batches import Batches, Windows
from .checkpoint import Checkpoint
from .distribution import distributed, rank, ranks
from .experiment import Experiment, Outcome
from .history import Best, History
from .loop import Training, train
from .seeds import Outcomes, train_seeds
from .stopping import Patience

__all__ = [
    "Batches",
    "Best",
    "Checkpoint",
    "Experiment",
    "History",
    "Outcome",
    "Outcomes",
    "Patience",
    "Training",
    "Windows",
    "captured",
    "distributed",
    "rank",
    "ranks",
    "train",
    "train_seeds",
]
