"""Every way to evaluate the operator, by name. The planner walks this list; a test walks it too."""

from .banded import Banded
from .base import Call, Strategy
from .cache import CacheState
from .factored import Factored
from .flex import Flex
from .fused import Fused
from .lowrank import LowRank
from .projected import Projected
from .random import Random
from .reference import Reference
from .scan import Scan, ScanState
from .sorted import Sorted
from .sparse import Sparse
from .tiled import Tiled
from .toeplitz import Toeplitz

STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Reference(),
        Fused(),
        Flex(),
        Tiled(),
        Factored(),
        Scan(),
        Toeplitz(),
        Sorted(),
        Banded(),
        Sparse(),
        LowRank(),
        Projected(),
        Random(),
    )
}

__all__ = [
    "STRATEGIES",
    "Banded",
    "CacheState",
    "Call",
    "Factored",
    "Flex",
    "Fused",
    "LowRank",
    "Projected",
    "Random",
    "Reference",
    "Scan",
    "ScanState",
    "Sorted",
    "Sparse",
    "Strategy",
    "Tiled",
    "Toeplitz",
]
