"""A training run under observation: what the loop does, in what order, and what its numbers are.

Nothing here draws random numbers, keeps a graph alive or touches a tensor of the run; weights come out
bit for bit as they would have without. `instruments` wraps a dozen functions of torch, and tells three
listeners: `forward` (who is called, in what mode, with what), `backward` (the loss, its graph, gradients left
over) and `steps` (optimizers, in what order they are used).
"""

from .listening import Enough
from .watcher import TIERS, Watch, watch

__all__ = ["TIERS", "Enough", "Watch", "watch"]
