"""Which neighbour holds the extreme or the middle: an index per target and feature, nothing per edge.

The index is piecewise constant, so it needs no derivative: the value itself is `x.gather(0, index)`, and
torch differentiates that in every mode and to every order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .parallel import over_rows


@torch.library.custom_op("heedful::neighbor_argmax", mutates_args=())
def neighbor_argmax(rowptr: Tensor, col: Tensor, x: Tensor, largest: bool) -> Tensor:
    """The source of the largest (or smallest) x[source, f] heard by each target; −1 where nothing is heard.

    x is (sources, features), the answer (targets, features) int64. Ties go to the first slot; NaN wins.
    """
    rows = rowptr.shape[0] - 1
    if x.device.type != "cpu":
        return _argmax_by_sorting(rowptr, col, x, largest)

    from .aggregate_numba import argmax_rows

    x = _wide(x)
    out = torch.empty(rows, x.shape[1], dtype=torch.int64)
    sign = x.numpy().dtype.type(1 if largest else -1)
    over_rows(
        argmax_rows, rowptr.numpy(), col.numpy(), x.numpy(), sign, out.numpy(), work=col.shape[0] * x.shape[1]
    )
    return out


@torch.library.custom_op("heedful::neighbor_middle", mutates_args=())
def neighbor_middle(rowptr: Tensor, col: Tensor, x: Tensor) -> Tensor:
    """The sources of the lower and upper middle of the x[source, f] heard by each target; −1 if none.

    x is (sources, features), the answer (2, targets, features) int64; the two are one where the count is odd.
    If a value is NaN, both point at it.
    """
    if x.device.type != "cpu":
        return _middle_by_sorting(rowptr, col, x)

    from .aggregate_numba import middle_rows

    x = _wide(x)
    out = torch.empty(2, rowptr.shape[0] - 1, x.shape[1], dtype=torch.int64)
    work = 8 * col.shape[0] * x.shape[1]
    over_rows(middle_rows, rowptr.numpy(), col.numpy(), x.numpy(), out.numpy(), work=work)
    return out


def _wide(x: Tensor) -> Tensor:
    return (x.float() if x.dtype in (torch.float16, torch.bfloat16) else x).contiguous()


# The same in plain torch, for devices without a kernel of their own.


def _argmax_by_sorting(rowptr: Tensor, col: Tensor, x: Tensor, largest: bool) -> Tensor:
    slots = _sorted_slots(rowptr, col, x if largest else -x, descending=True)
    return _sources_at(rowptr, col, slots, rowptr[:-1].long())


def _middle_by_sorting(rowptr: Tensor, col: Tensor, x: Tensor) -> Tensor:
    start, stop = rowptr[:-1].long(), rowptr[1:].long()
    slots = _sorted_slots(rowptr, col, x)
    last = _sources_at(rowptr, col, slots, stop - 1)
    spoiled = x.gather(0, last.clamp(min=0)).isnan()  # NaN sorts last
    middle = ((start + stop - 1) // 2, (start + stop) // 2)
    return torch.stack([torch.where(spoiled, last, _sources_at(rowptr, col, slots, at)) for at in middle])


def _sorted_slots(rowptr: Tensor, col: Tensor, x: Tensor, *, descending: bool = False) -> Tensor:
    """The slots by row, then by x[col[slot], f], then by slot: (edges, features) int64. NaN is largest."""
    rows = torch.arange(rowptr.shape[0] - 1, device=rowptr.device)
    row = rows.repeat_interleave(rowptr.diff(), output_size=col.shape[0])  # (edges,)
    by_value = x.index_select(0, col).argsort(dim=0, descending=descending, stable=True)
    by_row = row[by_value].argsort(dim=0, stable=True)
    return by_value.gather(0, by_row)


def _sources_at(rowptr: Tensor, col: Tensor, slots: Tensor, position: Tensor) -> Tensor:
    """The source in each target's slot at that position, and −1 for targets without slots."""
    sources = col[slots[position.clamp(0, col.shape[0] - 1)]].long()
    return sources.masked_fill((rowptr.diff() == 0).unsqueeze(-1), -1)


@neighbor_argmax.register_fake
def _(rowptr, col, x, largest):
    return x.new_empty(rowptr.shape[0] - 1, x.shape[1], dtype=torch.int64)


@neighbor_middle.register_fake
def _(rowptr, col, x):
    return x.new_empty(2, rowptr.shape[0] - 1, x.shape[1], dtype=torch.int64)


@neighbor_argmax.register_vmap
def _(info, in_dims, rowptr, col, x, largest):
    x = _batch_as_features(in_dims, x)
    return neighbor_argmax(rowptr, col, x.flatten(1), largest).unflatten(1, x.shape[1:]), 2


@neighbor_middle.register_vmap
def _(info, in_dims, rowptr, col, x):
    x = _batch_as_features(in_dims, x)
    return neighbor_middle(rowptr, col, x.flatten(1)).unflatten(2, x.shape[1:]), 3


def _batch_as_features(in_dims, x: Tensor) -> Tensor:
    if in_dims[0] is not None or in_dims[1] is not None:
        raise NotImplementedError("aggregate(): vmap over the graph itself; use Graph.batch for many graphs.")
    return x.movedim(in_dims[2], -1)  # (sources, features, batch)
