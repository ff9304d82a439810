"""The drop-ins give what PyG's layers give: outputs, gradients, attention weights, for any options."""

from __future__ import annotations

import pytest
import torch

from .pyg_cases import LAYERS, Draw, assert_same, pair


def in_dtype(thing, dtype):
    if isinstance(thing, tuple):
        return tuple(in_dtype(t, dtype) for t in thing)
    return thing.to(dtype) if isinstance(thing, torch.Tensor) and thing.is_floating_point() else thing


@pytest.mark.parametrize("number", range(60))
@pytest.mark.parametrize("name", LAYERS)
def test_any_options(name, number, seed):
    args, options, inputs, call = Draw(f"{seed} {name} {number}").layer(name)
    ours, theirs = pair(name, *args, **options)
    assert_same(ours, theirs, *inputs, **call)
