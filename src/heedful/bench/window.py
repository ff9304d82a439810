"""Window(128): peak memory against length, and time beside softmax with a dense mask."""

from __future__ import annotations

import math

import torch
from torch.nn.functional import scaled_dot_product_attention

from .. import Window, attend
from ..attention.measure import peak_memory, seconds, training_step
from . import interleaved


def run(*, quick: bool, device: str):
    torch.manual_seed(0)
    neighbors, heads, dim = Window(128), 4, 64

    def draw(length):
        return list(torch.randn(3, 1, heads, length, dim, device=device))

    rows, lengths = [], [4_096, 8_192, 16_384] if quick else [8_192, 16_384, 32_768, 65_536]
    for length in lengths:
        step = training_step(lambda *t: attend(*t, neighbors=neighbors), draw(length))
        rows.append({"length": length, "step s": seconds(step), "peak MiB": peak_memory(step) / 2**20})
    slope = math.log(rows[-1]["peak MiB"] / rows[0]["peak MiB"]) / math.log(lengths[-1] / lengths[0])
    length = 2_048 if quick else 8_192
    tensors = draw(length)
    position = torch.arange(length, device=device)
    mask = (position[:, None] - position).abs() <= 128

    def masked(q, k, v):
        return scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def windowed(q, k, v):
        return attend(q, k, v, neighbors=neighbors)

    with torch.no_grad():
        forward = interleaved(
            {"auto": lambda: windowed(*tensors), "dense": lambda: masked(*tensors)}, rounds=5, warm=1
        )
    step = interleaved(
        {"auto": training_step(windowed, tensors), "dense": training_step(masked, tensors)}, rounds=3, warm=1
    )
    ratios = forward["dense"] / forward["auto"], step["dense"] / step["auto"]
    rows.append({"length": length, "dense ÷ auto, forward": ratios[0], "dense ÷ auto, step": ratios[1]})
    verdict = (
        f"memory grows like length^{slope:.2f} (goal 1); "
        f"{ratios[0]:.1f}× a dense mask at {length:,} forward, {ratios[1]:.1f}× with backward (goal 10)"
    )
    return rows, verdict, slope < 1.1 and min(ratios) >= 10
