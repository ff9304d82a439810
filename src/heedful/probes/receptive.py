"""Which inputs one output hears."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def receptive_field(model: nn.Module, x: Tensor, at: Sequence[int], *, batch: int = 0) -> Tensor:
    """|∂ out[batch, :, *at] / ∂ x[batch]|, summed over channels: where an output looks, and how hard.

    x is (batch, channels, *places), out likewise (or (batch, classes), with `at` empty). Zero exactly where
    the output does not depend on the input to first order.

    >>> model = nn.Conv1d(1, 1, 3, padding=1)
    >>> (receptive_field(model, torch.randn(1, 1, 7), at=(3,)) > 0).int()
    tensor([0, 0, 1, 1, 1, 0, 0], dtype=torch.int32)
    """
    training = model.training
    model.eval()
    try:
        with torch.enable_grad():
            x = x.detach().clone().requires_grad_()
            out = model(x)
            if out.dim() - 2 != len(at):
                raise ValueError(
                    f"receptive_field(): at={tuple(at)} names {len(at)} places, but the output has shape "
                    f"{tuple(out.shape)}; give one index for each dimension after the channels."
                )
            chosen = out[(batch, slice(None), *at)]
            total = torch.zeros_like(x[batch])
            for value in chosen.reshape(-1):  # each channel by itself: sums could cancel
                (gradient,) = torch.autograd.grad(value, x, retain_graph=True)
                total += gradient[batch].abs()
    finally:
        model.train(training)
    return total.sum(0)
