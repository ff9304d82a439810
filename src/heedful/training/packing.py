"""Nested states (dictionaries, lists, numbers, text, tensors) as named tensors and JSON, and back, exactly.

What cannot be written down is refused by the place it stands at. Reading makes these kinds of things and no
others, so a file cannot run anything.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_LISTS: dict[str, type] = {"$tuple": tuple, "$deque": deque}
_DICTS: dict[str, type] = {"$dict": dict, "$counter": Counter}


def pack(state: Any) -> tuple[Any, dict[str, Tensor]]:
    """(what json can write, the tensors it refers to, on the CPU and unshared)"""
    tensors: dict[str, Tensor] = {}
    return _packed(state, "", tensors), tensors


def unpack(plain: Any, tensors: Mapping[str, Tensor]) -> Any:
    """What was packed."""
    if isinstance(plain, list):
        return [unpack(part, tensors) for part in plain]
    if not isinstance(plain, dict):
        return plain
    if len(plain) == 1:
        ((kind, value),) = plain.items()
        if kind == "$tensor":
            return tensors[value]
        if kind == "$dtype":
            dtype = getattr(torch, value, None)
            if not isinstance(dtype, torch.dtype):
                raise ValueError(f"there is no torch.{value}")
            return dtype
        if kind == "$device":
            return torch.device(value)
        if kind in _LISTS:
            return _LISTS[kind](unpack(part, tensors) for part in value)
        if kind in _DICTS:
            return _DICTS[kind]({_key(unpack(k, tensors)): unpack(v, tensors) for k, v in value})
    return {name: unpack(part, tensors) for name, part in plain.items()}


def _packed(state: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    if state is None or isinstance(state, (bool, int, float, str)):
        return state
    if isinstance(state, Tensor):
        if state.layout is not torch.strided:
            raise TypeError(
                f"{place or 'the state'} is a tensor in layout {state.layout}; only dense ones are kept."
            )
        name = f"{len(tensors)}{place}"
        tensors[name] = state.detach().to("cpu", copy=True).contiguous()
        return {"$tensor": name}
    if isinstance(state, torch.dtype):
        return {"$dtype": str(state).removeprefix("torch.")}
    if isinstance(state, torch.device):
        return {"$device": str(state)}
    if isinstance(state, Mapping):
        simple = all(isinstance(key, str) and not key.startswith("$") for key in state)
        if simple and not isinstance(state, Counter):
            return {key: _packed(value, f"{place}.{key}", tensors) for key, value in state.items()}
        pairs = [
            [_packed(key, f"{place}.{key}", tensors), _packed(value, f"{place}.{key}", tensors)]
            for key, value in state.items()
        ]
        return {"$counter" if isinstance(state, Counter) else "$dict": pairs}
    if isinstance(state, (list, tuple, deque)):
        parts = [_packed(part, f"{place}.{n}", tensors) for n, part in enumerate(state)]
        if isinstance(state, list):
            return parts
        return {"$tuple" if isinstance(state, tuple) else "$deque": parts}
    if hasattr(state, "item") and getattr(state, "shape", None) == ():  # a number of numpy's
        return state.item()
    raise TypeError(
        f"{place.lstrip('.') or 'the state'} is a {type(state).__name__}, which cannot be written down; a "
        f"checkpoint holds numbers, text, tensors, and dictionaries, lists and tuples of them."
    )


def _key(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key
