"""What the three families of sparse CPU kernels share: their kinds, and which edges dropout keeps."""

from __future__ import annotations

import numpy as np
from numba import njit

from .lanes import GOLDEN, MIX_A, MIX_B

# No nnan or ninf: −inf is how an edge is silenced and NaN must come out where NaN went in.
# No arcp in the general path: 1/z may overflow where e/z does not.
FAST = {"contract", "reassoc", "nsz"}

ADDITIVE, ADDITIVE_V2, DOT, POWER, UNIFORM = range(5)
KINDS = {"additive": ADDITIVE, "additive_v2": ADDITIVE_V2, "dot": DOT, "power": POWER, "uniform": UNIFORM}

AHEAD = 8  # edges between asking for a row and using it


@njit(nogil=True, cache=True)
def mixed(x):
    """splitmix64's finaliser."""
    x = (x ^ (x >> np.uint64(30))) * MIX_A
    x = (x ^ (x >> np.uint64(27))) * MIX_B
    return x ^ (x >> np.uint64(31))


@njit(nogil=True, cache=True)
def head_keys(seeds, heads):
    """One hash key a head. Several seeds (vmapped copies) split the heads evenly and each counts its own
    from 0.
    """
    keys = np.zeros(max(heads, 1), np.uint64)
    if seeds.shape[0] == 0:
        return keys
    each = heads // seeds.shape[0]
    for h in range(heads):
        keys[h] = mixed(mixed(np.uint64(seeds[h // each])) + GOLDEN * np.uint64(h % each + 1))
    return keys


@njit(nogil=True, cache=True)
def keep_bits(seeds, heads, counters, threshold, out):
    """out[c, h]: is edge `counters[c]` kept in head h? (For tests: the kernels ask edge by edge.)"""
    keys = head_keys(seeds, heads)
    for c in range(counters.shape[0]):
        for h in range(heads):
            bits = mixed(keys[h] + np.uint64(counters[c]) * GOLDEN) >> np.uint64(11)
            out[c, h] = bits >= threshold


@njit(nogil=True, cache=True)
def counter_of(implied, columns, i, j, edge):
    """What dropout counts by: the caller's edge, or the pair (i, j) where the edges only spell out a
    pattern.
    """
    return np.uint64(i) * np.uint64(columns) + np.uint64(j) if implied else np.uint64(edge)
