"""What was made of a tensor, kept for as long as the tensor lives and is what it was."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class _Entry(NamedTuple):
    owner: weakref.ref
    state: tuple
    value: Any


class Cache:
    """`get(owner, key, make)` is `make()`, remembered until `owner` dies or is written to.

    An owner is known by identity, so that a graph is found without comparing its edges. What guards against a
    wrong answer:

    - The owner is held by a weak reference, and must be the very object: a new tensor in the place of a dead
      one is not mistaken for it, and nobody is kept alive.
    - A tensor's version counter, which autograd relies on too, tells of writes in place, through views as
      well. Its address, shape and strides tell of storage exchanged. Writing behind torch's back, through
      `.data` or a NumPy array that shares the memory, goes unnoticed here as it does there.
    - What cannot be followed (inference tensors, which count no versions; fakes, functorch's wrappers) is not
      kept.

    At most `limit` entries are kept, the oldest leave first. Threads may share a cache: reading is a lookup
    in a dictionary, and the worst that happens is that two of them make the same thing.
    """

    def __init__(self, limit: int):
        self.limit = limit
        self._entries: dict[Hashable, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, owner: Any, key: Hashable, make: Callable[[], Any]) -> Any:
        state = _state(owner)
        if state is None:
            return make()
        place = (id(owner), key)
        entry = self._entries.get(place)
        if entry is not None and entry.owner() is owner and entry.state == state:
            return entry.value
        value = make()
        self._entries.pop(place, None)  # the newest stands last, also when it replaces an older one
        self._entries[place] = _Entry(weakref.ref(owner, self._forget(place)), state, value)
        for oldest in list(self._entries)[: -self.limit]:
            self._entries.pop(oldest, None)
        return value

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()

    def _forget(self, place: Hashable) -> Callable[[weakref.ref], None]:
        entries = self._entries

        def forget(owner: weakref.ref) -> None:
            entry = entries.get(place)
            if entry is not None and entry.owner is owner:  # someone else may live there by now
                entries.pop(place, None)

        return forget


def _state(owner: Any) -> tuple | None:
    """What changes when the owner does; None if that cannot be told."""
    if not isinstance(owner, Tensor):
        return ()  # other owners (the structure of a Graph) are never changed
    if type(owner) is not Tensor or owner.is_inference() or owner.layout != torch.strided:
        return None
    if torch._C._functorch.is_functorch_wrapped_tensor(owner):
        return None
    return owner._version, owner.data_ptr(), owner.shape, owner.stride(), owner.dtype, owner.device
