"""`autograd.Function`s under vmap without torch's way there, which takes longer than many a kernel.

Torch flattens and rebuilds a Function's arguments as trees several times before it calls the Function's rule
for vmap, 300 µs each time. Here the tensors are unwrapped, the rule is called and what it returns is wrapped,
and no more. Without vmap, it fits the arguments to the signature first, for 40 µs; ours are complete. Where
torch's insides are not as expected, its own way is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

try:
    from torch._C._functorch import (
        _add_batch_dim,
        _remove_batch_dim,
        _unwrap_batched,
        _vmap_decrement_nesting,
        _vmap_increment_nesting,
    )
    from torch._functorch.pyfunctorch import (
        VmapInterpreter,
        retrieve_current_functorch_interpreter,
        temporarily_clear_interpreter_stack,
    )
    from torch._functorch.utils import unwrap_dead_wrappers
    from torch._functorch.vmap import lazy_load_decompositions
    from torch.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten
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


@contextmanager
def aside(*given: Tensor) -> Iterator[None]:
    """Around what is made once of `given` and kept: outside of any transform of torch.func's, which would
    wrap it for good. Not where what is given is wrapped itself.
    """
    wrapped = any(torch._C._functorch.is_functorch_wrapped_tensor(x) for x in given)
    if VmapInterpreter is None or wrapped or torch._C._functorch.maybe_current_level() is None:
        yield
    else:
        with temporarily_clear_interpreter_stack():
            yield


def only_vmap() -> bool:
    """Whether the call, which is not compiled, is under one vmap and under nothing else of torch.func's."""
    if VmapInterpreter is None or torch.compiler.is_compiling():
        return False
    if torch._C._functorch.maybe_current_level() != 1:
        return False
    return isinstance(retrieve_current_functorch_interpreter(), VmapInterpreter)


def vmap(function: Callable, dims: tuple, *, count: int, randomness: str) -> Callable:
    """torch.vmap(function, dims, randomness=randomness) over `count` copies, of arguments that need not be
    checked; the function returns a tuple of dictionaries.
    """
    if VmapInterpreter is None:
        return torch.vmap(function, dims, randomness=randomness)

    def called(*arguments):
        lazy_load_decompositions()
        level = _vmap_increment_nesting(count, randomness)
        try:
            found = function(*(_entered(x, dim, level) for x, dim in zip(arguments, dims, strict=True)))
            return tuple({n: _remove_batch_dim(x, level, count, 0) for n, x in d.items()} for d in found)
        finally:
            _vmap_decrement_nesting()

    return called


def _entered(x, dim, level: int):
    """What the function sees of an argument that has the copies where `dim` says."""
    if dim is None:
        return x
    if isinstance(x, Tensor):
        return _add_batch_dim(x, dim, level)
    if type(x) is dict and dim == 0:
        return {name: _entered(part, 0, level) for name, part in x.items()}
    flat, form = tree_flatten(x)
    places = _broadcast_to_and_flatten(dim, form)
    if places is None:
        raise ValueError(f"vmap: where copies are, {dim!r}, does not fit the argument, {form}.")
    return tree_unflatten(
        [_entered(part, place, level) for part, place in zip(flat, places, strict=True)], form
    )


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
