"""The lab: studies with published figures beside them, run over many seeds, kept, compared and reported.

>>> from heedful import lab
>>> sorted(lab.PROFILES)
['full', 'quick']
"""

from __future__ import annotations

from .kept import Kept, kept
from .result import Result
from .runner import run
from .statistics import Agreement, Difference, Figure, Summary, against, bootstrap, holm, paired, summarize
from .store import Run, Store, StoreError, Trial
from .study import PROFILES, Count, Range, Rate, Share, Study, find, studies, study
from .trained import Trained

__all__ = [
    "PROFILES",
    "Agreement",
    "Count",
    "Difference",
    "Figure",
    "Kept",
    "Range",
    "Rate",
    "Result",
    "Run",
    "Share",
    "Store",
    "StoreError",
    "Study",
    "Summary",
    "Trained",
    "Trial",
    "against",
    "bootstrap",
    "find",
    "holm",
    "kept",
    "paired",
    "run",
    "studies",
    "study",
    "summarize",
]
