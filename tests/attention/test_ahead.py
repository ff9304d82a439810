"""What is compiled before a race is what the race runs."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from heedful.attention import ahead
from heedful.attention.calibrate import _measurable, example
from heedful.attention.strategies import STRATEGIES


def test_what_compiles_is_run_once(monkeypatch):
    """And nothing else: torch's own operations were compiled long ago."""
    runs, names = [], ["reference", "fused", "tiled", "banded", "sparse"]
    for name in names:
        monkeypatch.setattr(STRATEGIES[name], "run", lambda call, name=name: runs.append(name) or call.query)
    make = partial(
        example, "softmax", "window:8", "none", heads=2, length=64, dim=4, training=False, device="cpu"
    )
    ahead._touch(make, lambda entry: names)
    assert runs == ["tiled", "banded", "sparse"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_kernels_lie_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    make = partial(
        example, "additive", "graph:4", "none", heads=2, length=64, dim=8, training=True, device="cuda"
    )
    ahead.compile_ahead([make], partial(_measurable, "cuda"), workers=1)
    assert list(tmp_path.rglob("*.cubin"))
