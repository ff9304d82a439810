"""The CPU loops of sparse attention, compiled by Numba when `sparse.py` first needs them.

Everything is one serial pass over a run of rows (or columns), so one row is always summed by one thread in
one order. Three families: plain GAT (`sparse_additive`), anything compiled for its shape (`sparse_shaped`),
anything at all (`sparse_general`).
"""

import numpy as np

from .sparse_additive import additive_kernels
from .sparse_common import KINDS, keep_bits
from .sparse_general import backward_columns, backward_rows, forward_rows, row_dots, sum_rows, transpose
from .sparse_shaped import shaped_kernels

__all__ = [
    "KINDS",
    "additive_kernels",
    "backward_columns",
    "backward_rows",
    "forward_rows",
    "keep_bits",
    "np",
    "row_dots",
    "shaped_kernels",
    "sum_rows",
    "transpose",
]
