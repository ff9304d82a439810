"""Kernels on GPUs with less shared memory than an H200: with fewer loads under way, in smaller blocks."""

from __future__ import annotations

from collections.abc import Callable

SMALLEST = 16  # positions a block: a tensor core's product takes no fewer

_FOUND: dict[tuple, tuple[int, int]] = {}  # what fits, where the first choice did not


def launch(
    kernel, grid: Callable[[int], tuple], tensors: tuple, *, block: int, stages: int, **options
) -> None:
    """kernel[grid(block)](*tensors, BLOCK=block, num_stages=stages, **options), or the largest that fits."""
    key = None
    if _FOUND:
        key = (kernel, tensors[0].device, block, stages, *options.items())
        block, stages = _FOUND.get(key, (block, stages))
    first = block, stages
    while True:
        try:
            kernel[grid(block)](*tensors, BLOCK=block, num_stages=stages, **options)
            break
        except Exception as error:
            from triton.runtime.errors import OutOfResources

            if not isinstance(error, OutOfResources):
                raise
            if stages > 1:
                stages = 1
            elif block > SMALLEST:
                block //= 2
            else:
                raise
    if (block, stages) != first:
        _FOUND[key or (kernel, tensors[0].device, *first, *options.items())] = block, stages
