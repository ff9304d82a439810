"""What those who were heard are told: of out_i = Σ_j s_ij v_j / z_i, L changes by s_ij (v_j·ĝ_i + ĥ_i)."""

from __future__ import annotations

import torch
from torch import Tensor


def divided(gradient: Tensor, out: Tensor, den: Tensor) -> tuple[Tensor, Tensor]:
    """ĝ = g / z, 0 where z is 0, and ĥ = −⟨ĝ, out⟩ of ĝ as it is rounded; in one pass on the GPU.

    g and out (..., N, e), z (..., N); out, z and ĥ are in float32.
    """
    from . import dividing_triton as kernels
    from .sparse_triton import on

    gradient, e = gradient.contiguous(), out.shape[-1]
    # What is divided by may be of any size, which float16 cannot hold.
    wide = torch.bfloat16 if gradient.dtype == torch.bfloat16 else torch.float32
    g, h = torch.empty_like(gradient, dtype=wide), torch.empty_like(den)
    with on(gradient.device):
        kernels.divide[(-(-den.numel() // 64),)](
            gradient, out, den, g, h, den.numel(), E=e, EP=max(16, 1 << (e - 1).bit_length()), BLOCK=64
        )
    return g, h
