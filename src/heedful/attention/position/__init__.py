"""What distance does to a score.

`Relative`, `Alibi` and `T5Buckets` add p_{i−j} to the log-score (for kernels: multiply sim by exp p_{i−j}).
All of them come down to one table over the offsets that occur, `table(...)`, through which gradients reach
their parameters. `Rotary` turns queries and keys instead, before they are compared.
"""

from .alibi import Alibi
from .base import Position, toeplitz_block
from .relative import Relative
from .rotary import Rotary
from .t5 import T5Buckets

__all__ = ["Alibi", "Position", "Relative", "Rotary", "T5Buckets", "toeplitz_block"]
