"""Which neighbour holds the extreme: an index per target and feature, found without a per-edge tensor.

The index is piecewise constant, so it needs no derivative: the extreme itself is `x.gather(0, index)`, and
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

    x = (x.float() if x.dtype in (torch.float16, torch.bfloat16) else x).contiguous()
    out = torch.empty(rows, x.shape[1], dtype=torch.int64)
    sign = x.numpy().dtype.type(1 if largest else -1)
    over_rows(
        argmax_rows, rowptr.numpy(), col.numpy(), x.numpy(), sign, out.numpy(), work=col.shape[0] * x.shape[1]
    )
    return out


def _argmax_by_sorting(rowptr: Tensor, col: Tensor, x: Tensor, largest: bool) -> Tensor:
    """The same in plain torch, for devices without a kernel of their own."""
    slots = sorted_slots(rowptr, col, x if largest else -x, descending=True)
    first = rowptr[:-1].long().clamp(max=max(col.shape[0] - 1, 0))
    return col[slots[first]].long().masked_fill((rowptr.diff() == 0).unsqueeze(-1), -1)


def sorted_slots(rowptr: Tensor, col: Tensor, x: Tensor, *, descending: bool = False) -> Tensor:
    """The slots by row, then by x[col[slot], f], then by slot: (edges, features) int64. NaN is largest."""
    rows = torch.arange(rowptr.shape[0] - 1, device=rowptr.device)
    row = rows.repeat_interleave(rowptr.diff(), output_size=col.shape[0])  # (edges,)
    by_value = x.index_select(0, col).argsort(dim=0, descending=descending, stable=True)
    by_row = row[by_value].argsort(dim=0, stable=True)
    return by_value.gather(0, by_row)


@neighbor_argmax.register_fake
def _(rowptr, col, x, largest):
    return x.new_empty(rowptr.shape[0] - 1, x.shape[1], dtype=torch.int64)


@neighbor_argmax.register_vmap
def _(info, in_dims, rowptr, col, x, largest):
    if in_dims[0] is not None or in_dims[1] is not None:
        raise NotImplementedError("aggregate(): vmap over the graph itself; use Graph.batch for many graphs.")
    x = x.movedim(in_dims[2], -1)  # (sources, features, batch)
    return neighbor_argmax(rowptr, col, x.flatten(1), largest).unflatten(1, x.shape[1:]), 2
