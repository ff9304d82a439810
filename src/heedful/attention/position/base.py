"""What every position is: a table over the offsets i−j, or a turn of queries and keys."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..problem import PositionFacts
from ..transforms import backwards, broadcasts, parts_of, traced


class Position:
    """Base of all positions. `signature` is what of it can change a plan."""

    signature: tuple
    rotates = False

    def facts(self) -> PositionFacts | None:
        return PositionFacts(self.__repr__(), learned=self._learned(), per_head=self._per_head())

    def _per_head(self) -> bool:
        entries = getattr(self, "entries", None)
        return entries is not None and entries.dim() == 2 and entries.shape[0] > 1

    def _learned(self) -> bool:
        return any(isinstance(part, Tensor) and part.requires_grad for part in parts_of(self))

    def check(self, reach: tuple[int, int], heads: int, dim: int) -> None:
        """Raise if the parameters do not fit. `reach` is how far (back, ahead) a listener hears."""

    def table(self, queries: int, keys: int, heads: int, like: Tensor) -> Tensor:
        """p over all offsets, (heads or 1, queries + keys − 1): entry (queries − 1) + (i − j)."""
        raise NotImplementedError

    def rates(self, heads: int, like: Tensor) -> Tensor:
        """The slope of each head, (heads or 1,), for positions that decay."""
        raise NotImplementedError

    def rotate(self, x: Tensor, start: int | Tensor) -> Tensor:
        """x (..., length, dim) turned, its first row at position `start`, for positions that rotate."""
        raise NotImplementedError


def all_offsets(queries: int, keys: int, device) -> Tensor:
    return torch.arange(1 - queries, keys, device=device)


def check_heads(what: str, rows: int, heads: int) -> None:
    if not broadcasts(rows, heads):
        raise ValueError(f"{what}: got {rows} rows for {heads} heads; give one row, or one a head.")


def check_numbers(what: str, table: Tensor, *, silent: bool = True) -> None:
    """Whether entries are numbers; `silent` says that −inf may be one."""
    if not isinstance(table, Tensor) or not table.is_floating_point():
        got = table.dtype if isinstance(table, Tensor) else type(table).__name__
        raise TypeError(f"{what} must be a floating-point tensor, got {got}.")
    if not traced() and table.device.type != "meta":
        bad = torch.isnan(table) | (table == math.inf) if silent else ~torch.isfinite(table)
        if bool(bad.any()):
            where = tuple(bad.nonzero()[0].tolist())
            raise ValueError(
                f"{what} is {table[where].item()} at {list(where)}; entries are finite"
                f"{', or −inf to silence' if silent else ''}."
            )


def toeplitz_block(table: Tensor, rows: tuple[int, int], columns: tuple[int, int], keys: int) -> Tensor:
    """The block p_{i−j} of a table over all offsets, (..., rows, columns), without an index a pair.

    Row r, column s holds entry r + keys − 1 − s: each row is its neighbour's run of the table shifted by one.
    """
    if torch.compiler.is_compiling():  # unfolding would fix the lengths; a compiler need not store the index
        i = torch.arange(rows[0], rows[1], device=table.device)[:, None]
        return table[..., i + (keys - 1) - torch.arange(columns[0], columns[1], device=table.device)]
    height, width = rows[1] - rows[0], columns[1] - columns[0]
    first = rows[0] + keys - columns[1]
    run = table[..., first : first + height + width - 1].flip(-1)
    return backwards(run.unfold(-1, width, 1), -2)
