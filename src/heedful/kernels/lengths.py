"""How large rows are, in powers of two: (q·k + c)^p is divided by them, so that no power overflows.

Weights may be multiplied by any number a listener, and dividing by powers of two is exact. With 2^a above
the entries of q_i, 2^b above those of all keys and 2^g above c, the larger of 2^{a+b} d and 2^g bounds what
i compares with whom, and no entry need be squared to know it. Keys are divided only as far as their powers
would not fit: beside one that is out of proportion, and that nobody need hear, the others would be nothing.
"""

from __future__ import annotations

from math import frexp, inf

import torch
from torch import Tensor

from . import sparse_operators
from .sparse_operators import unobserved

MOST = 126  # of exponents, either way, whose power of two and its inverse are normal numbers
ROOM = 60  # 2^ROOM, summed over any number of keys and multiplied by any value, is a float32
LONGEST = 2.0**63  # entry of a key that others are measured by; there are none whose squares are numbers
PARTS = 64  # of the keys, measured side by side


def shortened(q: Tensor, k: Tensor, constant: float, degree: int) -> tuple[Tensor, Tensor, Tensor]:
    """(q / r, k / s, constant / r s), r a power of two for each query, s one for all keys.

    q (..., N, d), k (..., M, d), the constants (..., N) in float32.
    """
    of_constant, room = frexp(constant)[1] if constant else -4 * MOST, ROOM // degree
    if sparse_operators.on_gpu(q.device) and all(map(unobserved, (q, k))):
        r, s, constants = _by_kernel(q, k, constant, of_constant, room)
    else:
        of_keys = _exponent(k, (-2, -1), LONGEST)
        of_keys = (of_keys - of_keys.clamp(-room, room)).clamp_min(of_constant - MOST)
        of_query = torch.maximum(_exponent(q, (-1,), inf), of_constant - of_keys).clamp(-MOST, MOST)
        r, s = (torch.ldexp(torch.ones_like(e, dtype=torch.float32), -e) for e in (of_query, of_keys))
        constants = (constant * r * s).squeeze(-1)
        r, s = r.to(q.dtype), s.to(k.dtype)
    return q * r, k * s, constants


def margin(d: int) -> int:
    """2^margin ≥ √d: by how much a row may be longer than its largest entry."""
    return (int(d - 1).bit_length() + 1) // 2


def _exponent(x: Tensor, dims: tuple[int, ...], limit: float) -> Tensor:
    entries = x.detach().abs()
    entries = torch.where(entries < limit, entries, 0)
    largest = entries.amax(dims, keepdim=True).float().clamp_min(2.0**-MOST)
    return torch.frexp(largest).exponent + margin(x.shape[-1])  # largest < 2^exponent


def _by_kernel(q, k, constant: float, of_constant: int, room: int) -> tuple[Tensor, Tensor, Tensor]:
    """(1/r, 1/s, constants) by two kernels: in torch these are a dozen operations, each as slow to start."""
    from . import lengths_triton as kernels
    from .sparse_triton import on

    lead, (n, d), m = q.shape[:-2], q.shape[-2:], k.shape[-2]
    q, k, batch = q.detach().contiguous(), k.detach().contiguous(), lead.numel()
    wide = max(16, 1 << (d - 1).bit_length())
    block = max(16, 4096 // wide)
    span = -(-m // PARTS // block) * block
    parts = -(-m // span)
    longest = q.new_empty((batch, parts), dtype=torch.float32)
    constants = q.new_empty((*lead, n), dtype=torch.float32)
    r, s = q.new_empty((*lead, n, 1)), k.new_empty((*lead, 1, 1))
    with on(q.device):
        kernels.longest[(parts, batch)](
            k, longest, m, span, LIMIT=LONGEST, D=d, DP=wide, BLOCK=block, num_warps=4
        )
        kernels.inverses[(-(-n // block), batch)](
            q, longest, r, s, constants, n, parts, float(constant), of_constant, room,
            MARGIN=margin(d), MOST=MOST, PARTS=PARTS, D=d, DP=wide, BLOCK=block, num_warps=4,
        )  # fmt: skip
    return r, s, constants
