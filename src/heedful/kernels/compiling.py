"""What torch.compile cannot see for itself, and is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

_Function = TypeVar("_Function", bound=Callable)


def constant_to_compiler(function: _Function) -> _Function:
    """Mark a function that torch.compile is to call once, while tracing, and to take at its word.

    This is `torch.compiler.assume_constant_result` without what importing it costs: all of torch's compiler,
    a second.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function


def of_one_size(*kept: Tensor) -> tuple[Tensor, ...]:
    """Tensors that such a function returns. torch.compile(dynamic=True) takes their sizes for variables, too,
    and could not look them up again. (`torch._dynamo.mark_static` does nothing while something is compiled.)
    """
    for x in kept:
        vars(x)["_dynamo_static_indices"] = set(range(x.dim()))
        vars(x)["_has_dynamo_dim_marking"] = True
    return kept


@constant_to_compiler
def transformed() -> bool:
    """Whether a call is under vmap, grad or another transform of torch.func's."""
    return bool(_levels())


@constant_to_compiler
def differentiated() -> bool:
    """Whether it is under any of them but vmap. Operators with gradients of their own do not go through, for
    they are Functions of a kind that torch.func does not take.
    """
    return bool(_levels() - {"Vmap"})


@constant_to_compiler
def pushed_forward() -> bool:
    """Whether it is under jvp, jacfwd or hessian: Functions, as they are compiled, forget tangents."""
    return "Jvp" in _levels()


@constant_to_compiler
def differentiated_in_copies() -> bool:
    """Whether it is under vmap and grad, which no Function that is compiled goes through."""
    return {"Vmap", "Grad"} <= _levels()


def _levels() -> set[str]:
    return {level.key().name for level in torch._C._functorch.get_interpreter_stack() or ()}
