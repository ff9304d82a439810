"""Many processes, one training: `torchrun --nproc-per-node 2 train.py` and one more line in train.py.

    gradient  =  Σ_ranks (n_rank / n) · gradient of rank's mean loss,      n = Σ_ranks n_rank

Torch's wrappers average the ranks' gradients evenly; `train` weights each rank's loss by its share of the
samples first, so that an uneven last batch counts right and the result is that of one process on the joint
batch.
"""

from __future__ import annotations

import atexit
import gc
import os
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist


class Group:
    """The processes that train together; alone, there is one and nothing is sent."""

    def __init__(self) -> None:
        together = dist.is_available() and dist.is_initialized()
        self.rank = dist.get_rank() if together else 0
        self.ranks = dist.get_world_size() if together else 1

    @property
    def alone(self) -> bool:
        return self.ranks == 1

    @property
    def first(self) -> bool:
        """Whether this process is the one that logs and keeps checkpoints."""
        return self.rank == 0

    def sum(self, numbers: Tensor) -> Tensor:
        """Added up over the processes."""
        if not self.alone:
            numbers = numbers.clone()
            dist.all_reduce(numbers)
        return numbers

    def from_first(self, thing: Any) -> Any:
        """What the first process has, in all of them."""
        if self.alone:
            return thing
        held = [thing]
        dist.broadcast_object_list(held, 0)
        return held[0]

    def gather(self, thing: Any) -> list[Any]:
        """What each process has, by rank."""
        if self.alone:
            return [thing]
        held: list[Any] = [None] * self.ranks
        dist.all_gather_object(held, thing)
        return held


def distributed(model: nn.Module, *, shard: bool = False) -> nn.Module:
    """The model, ready to be trained by all processes torchrun started; itself where there is one.

    Args:
        model: the same in every process (seed them alike, or load the same weights).
        shard: False copies it to every process (`DistributedDataParallel`); True splits its weights,
            gradients and optimizer state between them (`fully_shard`), which a model too large for one device
            needs. Make the optimizer after, from what this returns.

    Give each process its part of every batch, `batches.share(rank(), ranks())`, and `train` as usual: the
    first process logs and keeps checkpoints.

    >>> model = nn.Linear(3, 2)
    >>> distributed(model) is model          # not under torchrun
    True
    """
    join()
    group = Group()
    if group.alone:
        return model
    local = int(os.environ.get("LOCAL_RANK", 0))
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
        model = model.to(f"cuda:{local}")
    if shard:
        from torch.distributed.fsdp import fully_shard

        for part in list(_parts(model)):
            fully_shard(part)
        return fully_shard(model)  # type: ignore[return-value]
    return nn.parallel.DistributedDataParallel(
        model, device_ids=[local] if torch.cuda.is_available() else None
    )


def join() -> Group:
    """Meet the other processes torchrun started, if it did."""
    if dist.is_available() and not dist.is_initialized() and "WORLD_SIZE" in os.environ:
        missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
        if missing:
            raise RuntimeError(
                f"distributed: WORLD_SIZE is set but {', '.join(missing)} is not; start the script with "
                f"torchrun."
            )
        if int(os.environ["WORLD_SIZE"]) > 1:
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
            atexit.register(_leave)
    return Group()


def rank() -> int:
    """The number of this process among those torchrun started, from 0."""
    return join().rank


def ranks() -> int:
    """How many processes torchrun started; 1 without it."""
    return join().ranks


def _leave() -> None:
    """Gloo's threads may still hold a tensor when their work is done, and one that lets go of it while Python
    shuts down aborts the process. So what holds the group goes first, and the threads get a moment.
    """
    if dist.is_initialized():
        gc.collect()
        dist.destroy_process_group()
        gc.collect()
        time.sleep(0.1)


def _parts(model: nn.Module) -> Iterator[nn.Module]:
    """What is gathered at a time: the outermost lists' and sequences' items, which are a model's blocks."""
    if isinstance(model, (nn.ModuleList, nn.Sequential)):
        yield from (item for item in model if next(item.parameters(), None) is not None)
    else:
        for part in model.children():
            yield from _parts(part)
