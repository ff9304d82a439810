"""X W + b for features dense or sparse: what `nn.Linear` is for dense ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .features import Features, product


class Affine(nn.Module):
    """X W + b, W (inputs, outputs), for a dense X or a sparse one."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Features) -> Tensor:
        out = product(x, self.weight)
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        return (
            f"{self.weight.shape[0]}, {self.weight.shape[1]}{'' if self.bias is not None else ', bias=False'}"
        )
