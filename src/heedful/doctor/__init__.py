"""What is wrong with a training run: any PyTorch loop, a stranger's script included."""

from __future__ import annotations

from ..probes import receptive_field
from .examine import examine
from .findings import KINDS, Finding
from .leaks import check_batch_independence, check_causal, check_overlap, check_permutation
from .report import Report
from .watch import Watch, watch

__all__ = [
    "KINDS",
    "Finding",
    "Report",
    "Watch",
    "check_batch_independence",
    "check_causal",
    "check_overlap",
    "check_permutation",
    "examine",
    "receptive_field",
    "watch",
]
