"""Backward passes that run a function again, be they differentiated themselves or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def gradients_again(
    function: Callable,
    inputs: Sequence[Tensor],
    needed: Sequence[bool],
    gradients: Sequence[Tensor | None],
    *,
    recorded: bool = True,
) -> list[Tensor | None]:
    """What function(*inputs) passes back of `gradients`; None for inputs that are not needed.

    Inputs may be one tensor under several names, as in self-attention. Each gets a view of its own: asked for
    the tensor itself, torch would give every name the gradients of all.
    """
    with torch.enable_grad():
        named = [x.view_as(x) if needs else x for x, needs in zip(inputs, needed, strict=True)]
        outputs = function(*named)
    outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
    pairs = [(y, g) for y, g in zip(outputs, gradients, strict=True) if y.requires_grad and g is not None]
    wanted = [x for x, needs in zip(named, needed, strict=True) if needs]
    if not pairs or not wanted:
        return [None] * len(inputs)
    outputs, gradients = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(outputs, wanted, gradients, create_graph=recorded, allow_unused=True))
    return [next(found) if needs else None for needs in needed]
