"""The textbook, executed: statements of five courses as programs that measure and judge.

>>> from heedful import claims
>>> claims.check("B4.1", seeds=1).verdict
'holds'
"""

from __future__ import annotations

from .claim import VERDICTS, Claim, Verdict, check, claim, claims, find, judge, load_module
from .draw import Draw
from .evidence import Evidence, Finding, at_least, at_most, curve, exponent, mean, note, same
from .runner import check_all

__all__ = [
    "VERDICTS",
    "Claim",
    "Draw",
    "Evidence",
    "Finding",
    "Verdict",
    "at_least",
    "at_most",
    "check",
    "check_all",
    "claim",
    "claims",
    "curve",
    "exponent",
    "find",
    "judge",
    "load_module",
    "mean",
    "note",
    "same",
]
