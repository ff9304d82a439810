"""Which rows come when: an order that is a function of (seed, epoch), so that it can be taken up anywhere.

    order(seed, epoch)  =  a permutation of the rows, drawn by a generator seeded with hash(seed, epoch)

The place (epoch, batches already given, and which epoch comes next) is all there is to remember. Torch's
global generator is neither read nor moved, so what a model draws does not depend on how its data came.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator
from typing import Any, Self

import torch
from torch import Tensor


class Order:
    """Batches of row numbers; `Batches` and `Windows` say what is taken at them.

    Each `for` over it is one epoch, and the next one has another order, be it inside the first: each keeps
    its own place. `state()` tells where the outermost stands and `restore` goes there: the next `for` gives
    the rest of that epoch.
    """

    def __init__(
        self,
        rows: int,
        size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        replacement: bool = False,
        drop_last: bool = False,
    ):
        name = type(self).__name__
        for option, value in (("size", size), ("seed", seed)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name}: {option} is {value!r}; it takes an integer.")
        if size < 1:
            raise ValueError(f"{name}: size is {size}; a batch holds at least one row.")
        if rows < 1:
            raise ValueError(f"{name}: there are no rows to take.")
        if replacement and not shuffle:
            raise ValueError(f"{name}: replacement=True draws at random, so it needs shuffle=True.")
        if drop_last and rows < size:
            raise ValueError(
                f"{name}: {rows} rows make no batch of {size}, and drop_last=True drops the rest; "
                f"take size ≤ {rows}."
            )
        self.rows, self.size, self.seed = rows, size, seed
        self.shuffle, self.replacement, self.drop_last = shuffle, replacement, drop_last
        self.epoch = self.position = 0  # where the outermost `for` stands, or stood when it was left
        self.part, self.parts = 0, 1
        self._next = 0  # the epoch of the next `for`, unless that goes on with one
        self._going_on = False
        self._outermost: weakref.ref[_Epoch] | None = None

    def take(self, rows: Tensor | slice) -> Any:
        """What is at these rows."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Batches in an epoch."""
        return self.rows // self.size if self.drop_last else -(-self.rows // self.size)

    def __iter__(self) -> Iterator[Any]:
        return _Epoch(self)

    def state(self) -> dict[str, int]:
        """Where it stands: the epoch, how many batches of it were given, and the epoch that comes next."""
        return self._state(self.epoch, self.position)

    def _state(self, epoch: int, position: int) -> dict[str, int]:
        place = {"epoch": epoch, "position": position, "next": max(self._next, epoch + 1)}
        return {**place, "seed": self.seed, "rows": self.rows}

    def restore(self, state: dict[str, int]) -> None:
        """Stand where `state` says; the next `for` gives the rest of that epoch."""
        for name in ("seed", "rows"):
            if state[name] != getattr(self, name):
                raise ValueError(
                    f"{type(self).__name__}.restore: the state is of {name} {state[name]}, this has "
                    f"{getattr(self, name)}; it would go on in another order."
                )
        self.epoch, self.position, self._going_on = state["epoch"], state["position"], True
        self._next = state.get("next", self.epoch + 1)  # which older states do not tell
        self._outermost = None

    def share(self, part: int, parts: int) -> Self:
        """Every `parts`-th row of each batch, from the `part`-th: together the parts give the same batches.

        >>> whole = Batches(torch.arange(10), size=4)
        >>> a, b = (next(iter(whole.share(part, 2))) for part in (0, 1))
        >>> torch.equal(torch.stack([a, b], 1).flatten(), next(iter(whole)))
        True
        """
        smallest = self.rows % self.size if self.rows % self.size and not self.drop_last else self.size
        if not 0 <= part < parts:
            raise ValueError(f"share: part {part} of {parts}; it takes 0 … {parts - 1}.")
        if smallest < parts:
            raise ValueError(
                f"share: the smallest batch has {smallest} rows, too few for {parts} parts; take a larger "
                f"size, or drop_last=True."
            )
        twin = copy.copy(self)
        twin.part, twin.parts = part, parts
        return twin

    def _begin(self, under_way: _Epoch) -> Self:
        """A twin that stands where the next `for` begins."""
        twin = copy.copy(self)
        if self._going_on:
            self._going_on = False
        else:
            twin.epoch, twin.position = self._next, 0
            self._next += 1
        outer = None if self._outermost is None else self._outermost()
        if outer is None or outer.ended:  # who is gone was left in the middle
            self._outermost = weakref.ref(under_way)
        return twin

    def _moved(self, under_way: _Epoch, epoch: int, position: int) -> None:
        if self._outermost is not None and self._outermost() is under_way:
            self.epoch, self.position = epoch, position

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_outermost": None}  # nobody goes through a copy yet

    def _order(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(_hash(self.seed, epoch))
        if self.replacement:
            return torch.randint(self.rows, (len(self) * self.size,), generator=generator)[: self.rows]
        return torch.randperm(self.rows, generator=generator)

    def _own(self, order: Tensor | None, start: int, stop: int) -> Tensor | slice:
        if order is None:  # a slice is a view: nothing is copied
            return slice(start + self.part, stop, self.parts)
        return order[start + self.part : stop : self.parts]


class _Epoch(Iterator[Any]):
    """Once through an order. It knows its own place, for another may begin before it ends."""

    def __init__(self, whole: Order):
        self.whole, self.ended = whole, False
        self._twin: Order | None = None  # whose `take` may ask which epoch and position it is

    def __next__(self) -> Any:
        if self.ended:
            raise StopIteration
        if self._twin is None:  # begun when first asked, not when made
            self._twin = self.whole._begin(self)
            self._order = self._twin._order(self._twin.epoch) if self._twin.shuffle else None
        here = self._twin
        if here.position >= len(here):
            self.ended = True
            self.whole._moved(self, self.whole._next, 0)
            raise StopIteration
        start = here.position * here.size
        stop = min(start + here.size, here.rows)
        here.position += 1
        self.whole._moved(self, here.epoch, here.position)
        return here.take(here._own(self._order, start, stop))

    def state(self) -> dict[str, int]:
        """Where this one stands, whoever else is under way; once it has ended, where the next begins."""
        if self._twin is None:
            return self.whole.state()
        if self.ended:
            return self.whole._state(self.whole._next, 0)
        return self.whole._state(self._twin.epoch, self._twin.position)


class Batches(Order):
    """Batches of rows of tensors that belong together, in an order that can be taken up again.

    Args:
        tensors: each (rows, ...); a batch is a tuple of their rows, or for one tensor the rows themselves.
        size: rows in a batch; the last of an epoch may have fewer, unless `drop_last`.
        shuffle: a new order each epoch; otherwise as they stand.
        seed: of the order. It has nothing to do with torch's global generator.
        replacement: rows are drawn independently, so one may come twice.

    >>> x, y = torch.randn(10, 3), torch.arange(10)
    >>> batches = Batches(x, y, size=4)
    >>> [len(labels) for _, labels in batches]
    [4, 4, 2]
    """

    def __init__(self, *tensors: Tensor, size: int, **options: Any):
        if not tensors or not all(isinstance(tensor, Tensor) and tensor.dim() for tensor in tensors):
            raise TypeError("Batches: it takes tensors with rows, as in Batches(x, y, size=32).")
        lengths = [len(tensor) for tensor in tensors]
        if len(set(lengths)) > 1:
            raise ValueError(f"Batches: the tensors have {lengths} rows; they must have as many each.")
        super().__init__(lengths[0], size, **options)
        self.tensors = tensors

    def take(self, rows: Tensor | slice) -> Tensor | tuple[Tensor, ...]:
        taken = tuple(t[_beside(rows, t) if isinstance(rows, Tensor) else rows] for t in self.tensors)
        return taken if len(taken) > 1 else taken[0]


class Windows(Order):
    """Windows of a long sequence and what comes next: x = s[i : i+length], y = s[i+1 : i+length+1].

    Args:
        sequence: (n,) of numbers, one a character or token.
        length: of a window.
        size: windows in a batch.
        replacement: windows start anywhere, drawn independently (the default), or each start comes once.

    >>> x, y = next(iter(Windows(torch.arange(100), length=8, size=4)))
    >>> x.shape, torch.equal(x + 1, y)
    (torch.Size([4, 8]), True)
    """

    def __init__(
        self, sequence: Tensor, length: int, size: int, *, replacement: bool | None = None, **options: Any
    ):
        if not isinstance(sequence, Tensor) or sequence.dim() != 1:
            raise TypeError("Windows: sequence must be a tensor of one dimension.")
        if length < 1 or len(sequence) <= length:
            raise ValueError(
                f"Windows: length is {length} and the sequence has {len(sequence)}; it takes a length of at "
                f"least 1 and a sequence longer than that."
            )
        if replacement is None:
            replacement = options.get("shuffle", True)
        super().__init__(len(sequence) - length, size, replacement=replacement, **options)
        self.sequence, self.length = sequence, length
        self._offsets = torch.arange(length + 1, device=sequence.device)

    def take(self, rows: Tensor | slice) -> tuple[Tensor, Tensor]:
        if isinstance(rows, slice):
            rows = torch.arange(rows.start, rows.stop, rows.step)
        window = self.sequence[_beside(rows, self._offsets).unsqueeze(1) + self._offsets]
        return window[:, :-1], window[:, 1:]


def _beside(rows: Tensor, other: Tensor) -> Tensor:
    """Row numbers on another's device, without waiting for what that has still to do."""
    return rows.to(other.device, non_blocking=True)


def _hash(seed: int, epoch: int) -> int:
    """splitmix64 of the two: near seeds give unrelated orders, and (0, 1) is not (1, 0)."""
    bits = (1 << 64) - 1
    mixed = seed & bits
    for _ in range(2):
        mixed = (mixed + 0x9E3779B97F4A7C15) & bits
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & bits
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & bits
        mixed = (mixed ^ mixed >> 31) + epoch & bits
    return mixed >> 1
