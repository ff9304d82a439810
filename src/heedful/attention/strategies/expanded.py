"""Quadratic kernels on the GPU, whose features are made in registers: what `factored` and `scan` run there.

Lengths are taken out first, as in `Polynomial.prepare`: weights may be multiplied by any number a listener,
so q, k and the constant are divided by powers of two, which is exact, and no square overflows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...kernels.quadratic import WIDEST, quadratic_attention, suits
from ..similarity import Polynomial
from .base import Call


def expands(problem) -> bool:
    """Whether a problem will run here, for the planner."""
    quadratic = problem.similarity.kind == "power" and problem.similarity.degree == 2
    narrow = max(problem.dim, problem.value_dim) <= WIDEST and problem.dtype in ("float32", "bfloat16")
    return problem.device == "cuda" and quadratic and narrow and not problem.transform


def expanded(call: Call, *, causal: bool) -> Tensor | None:
    """The result, or None where the kernels do not take the call."""
    similarity = call.similarity
    if not isinstance(similarity, Polynomial) or similarity.degree != 2 or call.position is not None:
        return None
    query, key, value = call.query, call.key, call.value
    if key.shape[-3] != query.shape[-3]:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(repeats, -3) for x in (key, value))
    if not suits(query, key, value, causal):
        return None
    size_q, size_k = _size(query, similarity.constant), _size(key, similarity.constant).amax(-2, keepdim=True)
    constant = similarity.constant / (size_q * size_k)
    query, key = query / size_q.to(query.dtype), key / size_k.to(key.dtype)
    q, k, v, c = (x.flatten(0, -3) for x in (query, key, value, constant))
    out = quadratic_attention(q, k, v, c.squeeze(-1), causal)
    return out.unflatten(0, query.shape[:-2])


def _size(x: Tensor, constant: float) -> Tensor:
    """The length of each row with the root of the constant behind it, up to the next power of two."""
    length = torch.linalg.vector_norm(x.detach(), dim=-1, keepdim=True, dtype=torch.float32)
    if constant:
        length = (length * length + abs(constant)).sqrt()
    exponent = torch.frexp(length).exponent  # length = m 2^exponent, m < 1; 0 for a row of zeros
    return torch.ldexp(torch.ones_like(length), exponent)
