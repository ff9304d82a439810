"""The loop of `drop`, compiled by Numba on first use; bit for bit what `keep_mask` decides for head 0."""

from __future__ import annotations

import numpy as np
from numba import njit

from .lanes import GOLDEN
from .sparse_common import head_keys, mixed


@njit(nogil=True, cache=True)
def drop_rows(first, last, bounds, x, seed, threshold, scale, out):
    """out[n] = scale · x[n] where n is kept, else 0, for n from bounds[first] to bounds[last]."""
    key, nothing, start = head_keys(seed, 1)[0], x.dtype.type(0), bounds[first]
    x, out = x[start : bounds[last]], out[start : bounds[last]]  # counted from 0, the loop vectorises
    for n in range(len(x)):
        bits = mixed(key + np.uint64(start + n) * GOLDEN) >> np.uint64(11)
        out[n] = scale * x[n] if bits >= threshold else nothing
