"""Gradients divided by what their listeners weighed, in place of six operations."""

from __future__ import annotations

import triton
import triton.language as tl

from .feature_maps_triton import rows


@triton.jit(do_not_specialize=["length"])
def divide(gradient, out, den, g, h, length, E: tl.constexpr, EP: tl.constexpr, BLOCK: tl.constexpr):
    """g is rounded before h is made of it: y_j·ĝ_i + ĥ_i must be 0 where j is all that i hears."""
    n, e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, EP)
    here = n < length
    weight = tl.load(den + n, mask=here, other=0)
    nobody = weight == 0
    inverse = tl.where(nobody, 0.0, 1 / tl.where(nobody, 1.0, weight))
    divided = (rows(gradient, n, here, e, E) * inverse[:, None]).to(g.dtype.element_ty)
    tl.store(g + n[:, None] * E + e[None, :], divided, mask=here[:, None] & (e < E)[None, :])
    tl.store(h + n, -tl.sum(divided.to(tl.float32) * rows(out, n, here, e, E), 1), mask=here)
