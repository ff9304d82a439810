"""The loops of `drop`, compiled by Numba on first use; bit for bit what `keep_mask` decides for head 0."""

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


@njit(nogil=True, cache=True)
def drop_copies(first, last, bounds, x, seeds, threshold, scale, out):
    """The same for copies with a seed each, lying between the rows (R, S, F) and the features they count:
    out[r, s, f] = scale · x[r, s, f] where copy s keeps r·F + f. With x (R, 1, F), all copies share it.
    """
    copies, features = out.shape[1:]
    keys, nothing, own = head_keys(seeds, copies), x.dtype.type(0), x.shape[1] > 1
    for r in range(bounds[first], bounds[last]):
        if features == 1:
            for s in range(copies):
                bits = mixed(keys[s] + np.uint64(r) * GOLDEN) >> np.uint64(11)
                out[r, s, 0] = scale * x[r, s if own else 0, 0] if bits >= threshold else nothing
        else:
            start = r * features
            for s in range(copies):
                source, target = x[r, s if own else 0], out[r, s]
                for f in range(features):
                    bits = mixed(keys[s] + np.uint64(start + f) * GOLDEN) >> np.uint64(11)
                    target[f] = scale * source[f] if bits >= threshold else nothing
