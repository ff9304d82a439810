"""Mixed precision: products in a narrower type, weights and their updates in float32."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
AUTO = "auto"  # bfloat16 where there is hardware for it, on a GPU


class Precision:
    """Where autocast applies, and for float16 the scale that keeps small gradients from vanishing."""

    def __init__(self, name: str, device: torch.device):
        if name == AUTO:
            name = "bfloat16" if device.type == "cuda" else "float32"
        if name not in PRECISIONS:
            raise ValueError(f"train: precision is {name!r}; it takes {', '.join(PRECISIONS)} or {AUTO}.")
        self.name, self.device, self.dtype = name, device.type, PRECISIONS[name]
        self.scaler = torch.amp.GradScaler(self.device) if self.dtype is torch.float16 else None

    def __call__(self) -> AbstractContextManager:
        """A `with` around the forward pass."""
        return nullcontext() if self.dtype is None else torch.autocast(self.device, self.dtype)
