"""The loops of `drop`, compiled by Numba on first use; bit for bit what `keep_mask` decides for head 0."""

from __future__ import annotations

import numpy as np
from numba import njit

from .lanes import GOLDEN, splat, store
from .sparse_common import head_keys, mixed


@njit(nogil=True, cache=True)
def drop_rows(first, last, bounds, x, seed, threshold, scale, floor, out):
    """out[n] = scale · max(x[n], floor) where n is kept, else 0, for n from bounds[first] to bounds[last]."""
    key, nothing, start = head_keys(seed, 1)[0], x.dtype.type(0), bounds[first]
    x, out = x[start : bounds[last]], out[start : bounds[last]]  # counted from 0, the loop vectorises
    for n in range(len(x)):
        bits = mixed(key + np.uint64(start + n) * GOLDEN) >> np.uint64(11)
        out[n] = scale * (floor if x[n] < floor else x[n]) if bits >= threshold else nothing


BLOCK, LONG = 1024, 64  # numbers in a block; features that make a loop long enough
LANES = 16  # numbers written at a time where one is repeated


@njit(nogil=True, cache=True)
def drop_copies(first, last, bounds, x, seeds, threshold, scale, floor, out):
    """The same for copies with a seed each, lying between the rows (R, S, F) and the features they count:
    out[r, s, f] = scale · max(x[r, s, f], floor) where copy s keeps r·F + f. With x (R, 1, F), all copies
    share it.
    """
    copies, features = out.shape[1:]
    keys, nothing, own = head_keys(seeds, copies), x.dtype.type(0), x.shape[1] > 1
    if features >= LONG:
        for r in range(bounds[first], bounds[last]):
            for s in range(copies):
                source, target, key = x[r, s if own else 0], out[r, s], keys[s]
                for f in range(features):
                    bits = mixed(key + np.uint64(r * features + f) * GOLDEN) >> np.uint64(11)
                    above = floor if source[f] < floor else source[f]
                    target[f] = scale * above if bits >= threshold else nothing
        return
    # Rows go in blocks: key + counter is that of the first block plus a constant, so that the inner loop runs
    # straight through memory, however few the copies or the features.
    rows = max(1, BLOCK // (copies * features))
    base = np.empty(rows * copies * features, np.uint64)
    repeated, place = np.empty(base.shape[0] + LANES, x.dtype), np.empty(base.shape[0], np.int64)
    for n in range(base.shape[0]):
        place[n] = n // (copies * features) * features + n % features
        base[n] = keys[n // features % copies] + np.uint64(place[n]) * GOLDEN
    start = bounds[first]
    while start < bounds[last]:
        stop = min(start + rows, bounds[last])
        count, offset = (stop - start) * copies * features, np.uint64(start * features) * GOLDEN
        target = out[start:stop].reshape(count)
        if own:
            block = x[start:stop].reshape(count)
        else:
            shared = x[start:stop].reshape((stop - start) * features)
            if features == 1:  # a number goes over the first of the next, which follows
                for r in range(stop - start):
                    for n in range(r * copies, r * copies + copies, LANES):
                        store(repeated, n, splat(shared[r], LANES))
            else:
                for n in range(count):
                    repeated[n] = shared[place[n]]
            block = repeated
        for n in range(count):
            bits = mixed(base[n] + offset) >> np.uint64(11)
            target[n] = scale * (floor if block[n] < floor else block[n]) if bits >= threshold else nothing
        start = stop


@njit(nogil=True, cache=True)
def let_through(first, last, bounds, gradient, kept, scale, swapped, out):
    """out[r, s, f] = scale · gradient[r, s, f] where kept[r, s, f] is more than 0, else 0. The gradient may
    lie with copies before the rows, `swapped`.
    """
    nothing = kept.dtype.type(0)
    for r in range(bounds[first], bounds[last]):
        for s in range(kept.shape[1]):
            source, by, target = gradient[s, r] if swapped else gradient[r, s], kept[r, s], out[r, s]
            for f in range(kept.shape[2]):
                target[f] = nothing if by[f] <= 0 else scale * source[f]
