"""p_{i−j} from a table of buckets of distances."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..transforms import sizes
from .base import Position, all_offsets, check_heads, check_numbers


class T5Buckets(Position):
    """Adds table[bucket(i − j)]: near distances have a bucket each, far ones share ones that widen like log.

    `table` has one entry a bucket, optionally one row a head. `bidirectional=False` gives all buckets to the
    past (use it with `Causal()`); distances of `max_distance` and more share the last one.

    >>> import torch, heedful
    >>> heedful.T5Buckets(torch.zeros(32)).bucket(torch.tensor([0, 1, 7, 20, 500, -1]))
    tensor([ 0,  1,  7, 10, 15, 17])
    """

    def __init__(self, table: Tensor, *, bidirectional: bool = True, max_distance: int = 128):
        check_numbers("T5Buckets(table)", table)
        if table.dim() not in (1, 2):
            raise ValueError(
                f"T5Buckets(table): got shape {tuple(table.shape)}; takes (buckets,) or (heads, buckets)."
            )
        buckets = table.shape[-1] // (2 if bidirectional else 1)
        if buckets < 2 or max_distance <= buckets // 2:
            raise ValueError(
                f"T5Buckets: {table.shape[-1]} buckets with max_distance={max_distance}; needs at least 2 "
                f"buckets a direction and max_distance above {buckets // 2}."
            )
        self.entries, self.bidirectional, self.max_distance = table, bidirectional, max_distance
        shape = (tuple(table.shape), bidirectional, max_distance)
        self.signature = ("T5Buckets", *shape, table.requires_grad, table.device)

    def check(self, reach, heads, dim):
        if self.entries.dim() == 2:
            check_heads("T5Buckets(table)", self.entries.shape[0], heads)

    def bucket(self, offset: Tensor) -> Tensor:
        """The bucket of i − j."""
        buckets = self.entries.shape[-1]
        start = torch.zeros_like(offset)
        if self.bidirectional:
            buckets //= 2
            start = torch.where(offset < 0, buckets, 0)
            distance = offset.abs()
        else:
            distance = offset.clamp_min(0)
        near = buckets // 2
        ratio = torch.log(distance.clamp_min(1).double() / near) / math.log(self.max_distance / near)
        far = (near + (ratio * (buckets - near)).long()).clamp_max(buckets - 1)
        return start + torch.where(distance < near, distance, far)

    def table(self, queries, keys, heads, like):
        table = torch.atleast_2d(self.entries).to(like.device, like.dtype)
        return table.index_select(-1, self.bucket(all_offsets(queries, keys, like.device)))

    def __repr__(self):
        return f"T5Buckets({sizes(self.entries)})"
