"""Who else looks at a call: torch.compile, torch.func, forward-mode AD. And recomputing what they allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import index

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import checkpoint

from ..kernels.batching import aside
from ..kernels.compiling import constant_to_compiler, differentiated
from ..kernels.twice import gradients_again

FAR = 2**31  # bytes that torch's kernels reach with 32 bits
AT_ONCE = 4  # what slices may hold at once, in lengths of what they are slices of


@contextmanager
def lasting(*given: Tensor) -> Iterator[None]:
    """For tensors made once of these and kept.

    Made in inference mode, they could never take part in training; made while something is being exported,
    they would be shapes without numbers; made under a transform of torch.func's, they would end with it.
    """
    with _disable_current_modes(), torch.inference_mode(False), torch.no_grad(), aside(*given):
        yield


def functorch_active() -> bool:
    return torch._C._functorch.maybe_current_level() is not None


def forward_mode_active() -> bool:
    return forward_ad._current_level >= 0


def eager_on_cpu(x: Tensor) -> bool:
    """Whether a compiled loop may read the numbers of x: they are there, and nobody traces them."""
    return x.device.type == "cpu" and type(x) is Tensor and not (traced() or forward_mode_active())


def traced() -> bool:
    """Whether looking at the values of tensors would break the tracing of them."""
    return torch.compiler.is_compiling() or functorch_active()


def parts_of(thing: object) -> list:
    """What an object is made of. The compiler cannot go through that, and looks where ours keep tensors."""
    if torch.compiler.is_compiling():
        return [getattr(thing, name, None) for name in ("scale", "weight", "entries", "slopes")]
    return list(vars(thing).values())


@constant_to_compiler
def exporting() -> bool:
    """Whether a program is being made that is to run elsewhere. Before torch 2.12 torch.compile takes
    `is_exporting` for true, so it is not shown the question.
    """
    return torch.compiler.is_exporting()


def fixed(fact):
    """A number or truth as it is. With torch.compile(dynamic=True) every number is a variable, and what
    follows from it too, which no plan can be made for: asked in one of these ways, it is held to its value.
    """
    if isinstance(fact, bool):
        return True if fact else False  # noqa: SIM210 - a branch is taken or not
    if isinstance(fact, int):
        return index(fact)
    return float.fromhex(fact.hex()) if isinstance(fact, float) else fact


def autocast(x: object) -> bool:
    """Whether x is a tensor where torch.autocast is on."""
    return isinstance(x, Tensor) and not x.is_meta and torch.is_autocast_enabled(x.device.type)


def lowered(x):
    """What autocast makes of it: float64 and what is no number with a point stay as they are."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))


def broadcasts(size: int, wanted: int) -> bool:
    """Whether a size is 1 or the one wanted. Of symbols a compiler takes `size in (1, wanted)` for false."""
    return size == 1 or size == wanted


def sizes(x: Tensor) -> str:
    """The shape, to be read."""
    return " × ".join(str(fixed(n)) for n in x.shape)


def backwards(x: Tensor, dim: int) -> Tensor:
    """x.flip(dim), whatever its size.

    On a GPU torch (2.11) finds how far a flip reaches by adding up strides, one of them negative, and takes
    32 bits to be enough where they are not: memory is read and written that is not x's.
    """
    if not x.is_cuda or x.numel() * x.element_size() < FAR:
        return x.flip(dim)
    return x.index_select(dim, torch.arange(x.shape[dim] - 1, -1, -1, device=x.device))


def recompute(function: Callable, *tensors: Tensor, hidden: bool = False, held: Sequence[Tensor] = ()):
    """function(*tensors), keeping only the inputs: what is inside is computed again in the backward pass.

    It breaks off if tensors `held` by the function were written to in between: torch looks after inputs only.

    `hidden` says that the function also depends on tensors that are not arguments (the parameters of a user's
    feature map); torch's own checkpoint finds those, at four times the overhead. Function transforms cannot
    see through either, so under them everything is kept.
    """
    if torch.compiler.is_compiling():
        if differentiated():
            return function(*tensors)
        return checkpoint(function, *tensors, use_reentrant=False, preserve_rng_state=False)
    if not torch.is_grad_enabled() or functorch_active() or forward_mode_active():
        return function(*tensors)
    if held:
        function = _unchanged(function, held)
    if hidden:
        return checkpoint(function, *tensors, use_reentrant=False, preserve_rng_state=False)
    return _Recompute.apply(function, *tensors)


def _unchanged(function: Callable, held: Sequence[Tensor]) -> Callable:
    versions = [(x, x._version) for x in held if not x.is_inference()]

    def run(*tensors):
        for x, version in versions:
            if x._version != version:
                raise RuntimeError(
                    f"attend(): a tensor of shape {tuple(x.shape)} that the neighbours or the similarity "
                    f"hold was changed in place before the backward pass, which needs it as it was. Change "
                    f"a copy."
                )
        return function(*tensors)

    return run


def slices(x: Tensor, spans: list[tuple[int, int]]) -> Iterator[Tensor]:
    """Rows [start, stop) of x (..., length, dim) for each span; spans may overlap.

    Slicing one by one would make each slice's backward pass write a gradient as long as x: in all, quadratic
    in the length. So several share one, which adds them up in place; but it has to wait for all of them, so
    that no more share one than have `AT_ONCE` times the rows of x. A slice is made when it is asked for:
    torch goes back in the order things were made, and is done with one group before it begins the next.
    """
    length = x.shape[-2]
    transformed = torch.compiler.is_compiling() or functorch_active() or forward_mode_active()
    if transformed or len(spans) == 1 or not (torch.is_grad_enabled() and x.requires_grad):
        yield from (x[..., start:stop, :] for start, stop in spans)
        return
    group: list[tuple[int, int]] = []
    rows = 0
    for place, (start, stop) in enumerate(spans):
        group.append((start, stop))
        rows += stop - start
        if rows > AT_ONCE * length or place == len(spans) - 1:
            yield from _together(x, group)
            group, rows = [], 0


def _together(x: Tensor, spans: list[tuple[int, int]]) -> Iterator[Tensor]:
    if all(span == (0, x.shape[-2]) for span in spans):
        yield from (x for _ in spans)  # torch adds these up as they come
    else:
        first, last = min(start for start, _ in spans), max(stop for _, stop in spans)
        yield from _Slices.apply(x[..., first:last, :], [(a - first, b - first) for a, b in spans])


class _Slices(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, spans):
        ctx.spans, ctx.shape = spans, x.shape
        return tuple(x[..., start:stop, :] for start, stop in spans)

    @staticmethod
    def backward(ctx, *gradients):
        length = ctx.shape[-2]
        if torch.is_grad_enabled():
            padded = (
                torch.nn.functional.pad(gradient, (0, 0, start, length - stop))
                for gradient, (start, stop) in zip(gradients, ctx.spans, strict=True)
            )
            return sum(padded), None
        total = gradients[0].new_zeros(ctx.shape)
        for gradient, (start, stop) in zip(gradients, ctx.spans, strict=True):
            total[..., start:stop, :] += gradient
        return total, None


class _Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, *tensors):
        ctx.function = function
        ctx.save_for_backward(*tensors)
        return function(*tensors)

    @staticmethod
    def backward(ctx, *gradients):
        inputs, needed = ctx.saved_tensors, ctx.needs_input_grad[1:]
        recorded = torch.is_grad_enabled()  # someone will differentiate this backward pass
        if not recorded:
            inputs = [x.detach().requires_grad_(needs) for x, needs in zip(inputs, needed, strict=True)]
        return None, *gradients_again(ctx.function, inputs, needed, gradients, recorded=recorded)
