"""An example of a layer or model, with what it claims; all are held to the same list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Example:
    """How to build one, what to call it with, and which promises it makes.

    `inputs(dtype)` returns the arguments of a call; tensors of floating point among them get `dtype`.
    Outputs may be a tensor or a tuple whose first entry is judged.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[torch.dtype], tuple]
    shape: tuple[int, ...]  # of the output
    covers: tuple[str, ...] = ()  # public classes this example stands for; the built one's own if empty
    batch: bool = True  # dim 0 of the first input and of the output counts independent things (in eval mode)
    causal: bool = False  # output at t (dim 1) hears inputs up to t (dim 1) only
    equivariant: Callable | None = (
        None  # (inputs, permutation) -> permuted inputs; the output permutes in dim 0
    )
    unreached: tuple[str, ...] = ()  # parameters that need not get a gradient, with a reason in a comment
    compiles: bool = True  # under torch.compile(fullgraph=True)
    compile_kwargs: dict = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def make(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        return self.build().to(dtype)

    def call(self, dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple:
        torch.manual_seed(seed + 1)
        return self.inputs(dtype)
