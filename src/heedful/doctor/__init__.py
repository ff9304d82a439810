"""What is wrong with a training run: any PyTorch loop, a stranger's script included."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..probes import receptive_field
    from .examination import examine
    from .findings import KINDS, Finding
    from .leaks import check_batch_independence, check_causal, check_overlap, check_permutation
    from .report import Report
    from .watching import Watch, watch

__all__ = [
    "KINDS",
    "Finding",
    "Report",
    "Watch",
    "check_batch_independence",
    "check_causal",
    "check_overlap",
    "check_permutation",
    "examine",
    "receptive_field",
    "watch",
]

_HOMES = {
    "KINDS": "findings",
    "Finding": "findings",
    "Report": "report",
    "Watch": "watching",
    "watch": "watching",
    "examine": "examination",
    "receptive_field": "..probes",
}


def __getattr__(name: str):
    # `heedful doctor` starts a process for the script; the one that waits for it needs no torch.
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "leaks")
    found = getattr(import_module(home if home.startswith(".") else f".{home}", __name__), name)
    globals()[name] = found
    return found
