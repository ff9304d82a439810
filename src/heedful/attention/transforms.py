"""Who else is looking at this call: torch.compile, torch.func, forward-mode AD. And recomputing what they allow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint


def functorch_active() -> bool:
    return torch._C._functorch.maybe_current_level() is not None


def forward_mode_active() -> bool:
    return forward_ad._current_level >= 0


def traced() -> bool:
    """Whether looking at the values of tensors would break the tracing of them."""
    return torch.compiler.is_compiling() or functorch_active()


def recompute(function: Callable, *tensors: Tensor):
    """function(*tensors), keeping only the inputs for the backward pass: what is inside is computed again there.

    Function transforms cannot see through a checkpoint, so under them everything is kept.
    """
    if not torch.is_grad_enabled() or (functorch_active() and not torch.compiler.is_compiling()):
        return function(*tensors)
    return checkpoint(function, *tensors, use_reentrant=False, preserve_rng_state=False)
