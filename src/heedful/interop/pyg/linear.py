"""x Wᵀ + b, with PyG's two habits: −1 inputs means "see at the first call", and Glorot's weights."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import UninitializedParameter


def glorot(parameter: Tensor | None) -> None:
    """Uniform within ±√(6 / (rows + columns))."""
    if parameter is not None:
        bound = math.sqrt(6 / (parameter.shape[-2] + parameter.shape[-1]))
        nn.init.uniform_(parameter, -bound, bound)


class Linear(nn.Module):
    """x Wᵀ + b. With in_channels −1 the weight waits for the first input, or for a state_dict that has it."""

    def __init__(self, in_channels: int, out_channels: int, *, bias: bool = True, glorot: bool = False):
        super().__init__()
        self.out_channels = out_channels
        self.glorot = glorot
        lazy = in_channels < 0
        self.weight: Any = (
            UninitializedParameter() if lazy else nn.Parameter(torch.empty(out_channels, in_channels))
        )
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.reset_parameters()

    @property
    def in_channels(self) -> int:
        """How many inputs; −1 while that is not known."""
        return -1 if self.lazy else self.weight.shape[1]

    @property
    def lazy(self) -> bool:
        """Whether the weight still waits for its first input."""
        return isinstance(self.weight, UninitializedParameter)

    def reset_parameters(self) -> None:
        """Draw new weights, as PyG draws them: the same seed gives the same layer."""
        if self.lazy:
            return
        bound = 1 / math.sqrt(self.in_channels) if self.in_channels else 0.0
        if self.glorot:
            glorot(self.weight)
        else:
            nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_for(x), self.bias)

    def weight_for(self, x: Tensor) -> Tensor:
        """W, drawn now if it waited for this input."""
        if self.lazy:
            self._materialize(x.shape[-1])
            self.reset_parameters()
        return self.weight

    def _materialize(self, in_channels: int) -> None:
        # A layer that is first called in inference mode must stay trainable.
        with torch.inference_mode(False), torch.no_grad():
            self.weight.materialize((self.out_channels, in_channels))

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars or self.lazy)

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        weight = state_dict.get(prefix + "weight")
        if isinstance(weight, UninitializedParameter):
            self.weight = UninitializedParameter(device=self.weight.device, dtype=self.weight.dtype)
        elif self.lazy and weight is not None:
            self._materialize(weight.shape[-1])
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def __repr__(self) -> str:
        return f"Linear({self.in_channels}, {self.out_channels}, bias={self.bias is not None})"
