"""The state of every global generator of random numbers a training may draw from."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch


def seed_all(seed: int) -> None:
    """Seed torch's generators, numpy's and Python's."""
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        import numpy

        numpy.random.seed(seed % 2**32)


def capture() -> dict[str, Any]:
    """The states of torch's generators (CPU and every CUDA device), numpy's and Python's, as numbers."""
    version, numbers, gauss = random.getstate()
    found: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "python": {"version": version, "numbers": torch.tensor(numbers), "gauss": gauss},
    }
    if "numpy" in sys.modules:
        import numpy

        state = dict(numpy.random.get_state(legacy=False))
        state["state"] = {
            "key": torch.from_numpy(state["state"]["key"].astype("int64")),
            "pos": int(state["state"]["pos"]),
        }
        found["numpy"] = state
    return found


def restore(state: Mapping[str, Any]) -> None:
    """Put every generator where `capture` found it."""
    torch.set_rng_state(state["torch"])
    if state["cuda"]:
        if len(state["cuda"]) > torch.cuda.device_count():
            raise ValueError(
                f"the checkpoint holds the random states of {len(state['cuda'])} CUDA devices; here are "
                f"{torch.cuda.device_count()}."
            )
        torch.cuda.set_rng_state_all(state["cuda"])
    python = state["python"]
    random.setstate((python["version"], tuple(python["numbers"].tolist()), python["gauss"]))
    if "numpy" in state:
        import numpy

        found = dict(state["numpy"])
        key = found["state"]["key"].numpy().astype("uint32")
        numpy.random.set_state({**found, "state": {"key": key, "pos": found["state"]["pos"]}})
