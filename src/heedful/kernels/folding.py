"""What operators with the batch first have in common: copies under vmap are more of a batch, and gradients
that nobody needs are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def fold_copies(
    operator, constant: tuple[str, ...], alone: Callable[[dict], bool] = lambda arguments: False
) -> None:
    """Register a rule for vmap. Tensors in `constant` have no batch: where copies have their own, and where
    `alone` says so of the arguments by name, copies are computed one after the other.
    """
    names = [argument.name for argument in operator._opoverload._schema.arguments]

    def rule(info, in_dims, *arguments):
        size, given = info.batch_size, list(zip(names, arguments, in_dims, strict=True))
        own = any(name in constant and isinstance(x, Tensor) and dim is not None for name, x, dim in given)
        if own or alone(dict(zip(names, arguments, strict=True))):
            found = [operator(*(_copy(x, dim, place) for _, x, dim in given)) for place in range(size)]
            return tuple(map(torch.stack, zip(*found, strict=True))), (0,) * len(found[0])

        def folded(name, x, dim):
            if not isinstance(x, Tensor) or name in constant:
                return x
            x = x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
            return x.flatten(0, 1)

        together = operator(*(folded(*each) for each in given))
        return tuple(x.unflatten(0, (size, -1)) for x in together), (0,) * len(together)

    operator.register_vmap(rule)


def _copy(x, dim: int | None, place: int):
    return x if dim is None or not isinstance(x, Tensor) else x.select(dim, place)


def unset(tensors: tuple, needs: Sequence[bool]) -> tuple:
    return tuple(
        x.new_empty(x.shape if needed else (x.shape[0], 0, 0))
        for x, needed in zip(tensors, needs, strict=True)
    )


def or_empty(found: tuple, tensors: tuple) -> tuple:
    return tuple(x.new_empty(len(x), 0, 0) if g is None else g for g, x in zip(found, tensors, strict=True))


def wanted(found, needs) -> list[Tensor | None]:
    return [g if needed else None for g, needed in zip(found, needs, strict=True)]
