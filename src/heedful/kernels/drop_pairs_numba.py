"""The loop of `drop_pairs`, compiled by Numba on first use; bit for bit what `keep_mask` decides."""

from __future__ import annotations

import numpy as np
from numba import njit

from .lanes import GOLDEN
from .sparse_common import head_keys, mixed


@njit(nogil=True, cache=True)
def drop_rows(first, last, bounds, x, seed, heads, start, keys, threshold, scale, out):
    """Rows of x (heads · queries, columns); row r of a head and column c are pair (start + r)·keys + c."""
    key, nothing, queries = head_keys(seed, heads), x.dtype.type(0), x.shape[0] // heads
    for row in range(bounds[first], bounds[last]):
        head = row // queries
        pair = np.uint64(start + (row - head * queries) * keys)
        line, result, own = x[row], out[row], key[head]
        for c in range(len(line)):
            bits = mixed(own + (pair + np.uint64(c)) * GOLDEN) >> np.uint64(11)
            result[c] = scale * line[c] if bits >= threshold else nothing
