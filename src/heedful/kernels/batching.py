"""`autograd.Function`s under vmap without torch's way there, which takes longer than many a kernel.

Torch flattens and rebuilds a Function's arguments as trees several times before it calls the Function's rule
for vmap, 300 µs each time. Here the tensors are unwrapped, the rule is called and what it returns is wrapped,
and no more. Without vmap, it fits the arguments to the signature first, for 40 µs; ours are complete. Where
torch's insides are not as expected, its own way is taken.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

try:
    from torch._C._functorch import _add_batch_dim, _unwrap_batched
    from torch._functorch.pyfunctorch import VmapInterpreter, retrieve_current_functorch_interpreter
    from torch._functorch.utils import unwrap_dead_wrappers
except ImportError:
    VmapInterpreter = None  # type: ignore[assignment,misc]


class Info(NamedTuple):
    """What a rule is told of the vmap."""

    batch_size: int
    randomness: str


def alive(tensors: tuple) -> tuple:
    """Tensors as they are: what a transform of torch.func's that is over has wrapped, and was kept, is taken
    out.
    """
    return tensors if VmapInterpreter is None else unwrap_dead_wrappers(tensors)


def only_vmap() -> bool:
    """Whether the call is under one vmap and under nothing else of torch.func's."""
    if VmapInterpreter is None or torch._C._functorch.maybe_current_level() != 1:
        return False
    return isinstance(retrieve_current_functorch_interpreter(), VmapInterpreter)


def apply(kind: type[Function], *operands):
    """kind.apply(*operands), which must be all that forward takes."""
    if VmapInterpreter is None:
        return kind.apply(*operands)
    if torch._C._functorch.maybe_current_level() is None:
        return super(Function, kind).apply(*unwrap_dead_wrappers(operands))  # type: ignore[misc]
    interpreter = retrieve_current_functorch_interpreter()
    if not isinstance(interpreter, VmapInterpreter):
        return kind.apply(*operands)
    level = interpreter.level()
    pairs = [_unwrap_batched(x, level) if isinstance(x, Tensor) else (x, None) for x in operands]
    bare, dims = zip(*pairs, strict=True)
    if all(dim is None for dim in dims):
        return kind.apply(*operands)
    with torch._C.DisableTorchFunction(), interpreter.lower():  # nobody need be asked about what rules do
        out, place = kind.vmap(Info(interpreter.batch_size(), interpreter.randomness()), dims, *bare)
    if isinstance(out, Tensor):
        return out if place is None else _add_batch_dim(out, place, level)
    places = place if isinstance(place, tuple) else (place,) * len(out)
    return tuple(
        x if dim is None else _add_batch_dim(x, dim, level) for x, dim in zip(out, places, strict=True)
    )
