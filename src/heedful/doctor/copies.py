"""Copies to experiment on, and random states that are afterwards what they were."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator

import torch
from torch import nn

from ..training.randomness import capture, restore


@contextlib.contextmanager
def undisturbed(seed: int | None = None) -> Iterator[None]:
    """Random states are afterwards what they were; inside they may be seeded."""
    before = capture()
    try:
        if seed is not None:
            torch.manual_seed(seed)
        yield
    finally:
        restore(before)


def bare(model: nn.Module) -> nn.Module:
    """Without what compiling and distributing wrap around it."""
    model = getattr(model, "_orig_mod", model)
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def copied(model: nn.Module) -> nn.Module | None:
    """A copy that shares nothing; None where the model does not allow it."""
    try:
        found = copy.deepcopy(bare(model))
    except Exception:
        return None
    for parameter in found.parameters():
        parameter.grad = None
    return found
