"""torch's scaled_dot_product_attention, differentiable as often as one likes, at the price of a bare call.

Torch's fused kernels have no second derivative. So what torch recorded of a call is given a hook, which does
nothing but when the backward pass is itself to be differentiated: then it runs the composite. The hook asks
torch for what it saved for the backward pass, which is to be had once where activations are checkpointed or
kept elsewhere. There an autograd function of our own calls the kernels, for 50 µs more a step.
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp, inf
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...kernels.compiling import pushed_forward
from ...kernels.twice import gradients_again
from ..transforms import forward_mode_active, functorch_active


def sdpa(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """softmax(scale·q·k + mask) v for (batch, heads, length, dim); key and value may have fewer heads."""
    grouped = True if key.shape[-3] != query.shape[-3] else False  # noqa: SIM210 - heads may be symbols
    learned = mask is not None and mask.requires_grad
    wanted = query.requires_grad or key.requires_grad or value.requires_grad or learned
    wanted = wanted and torch.is_grad_enabled()
    guarded = query.device.type == "cpu" and not (grouped or torch.compiler.is_compiling())
    if wanted and not guarded and query.dtype == torch.float32 and abs(frexp(scale)[0]) != 0.5:
        # Torch's backward kernels round scale·q·k other than its forward ones, whose maximum they subtract:
        # with scores of 1e4 gradients would be 1e-3 off, with 1e8 by any factor. Scaled first, both agree.
        query, scale = query * scale, 1.0
    options: dict[str, Any] = {"is_causal": causal, "scale": scale, "enable_gqa": grouped}
    if torch.compiler.is_compiling():
        if pushed_forward():
            return _composite(query, key, value, mask, options)
        return F.scaled_dot_product_attention(query, key, value, mask, **options)
    if functorch_active() or forward_mode_active():
        return _composite(query, key, value, mask, options)
    if not wanted:
        return F.scaled_dot_product_attention(query, key, value, mask, **options)
    if learned:  # not every kernel gives a mask its gradient
        return _composite(query, key, value, mask, options)
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        out = F.scaled_dot_product_attention(query, key, value, mask, **options)
        if (node := _fused_node(out)) is not None:
            node.register_hook(_mended_on_cpu if query.device.type == "cpu" else _mended)
        return out
    backend = torch._fused_sdp_choice(query, key, value, mask, 0.0, **options)
    if backend == SDPBackend.MATH.value:
        return F.scaled_dot_product_attention(query, key, value, mask, **options)
    kernel = _KERNELS.get((query.device.type, backend))
    if kernel is not None and not kernel.takes(query, mask, grouped):
        kernel = None
    return _OnceFast.apply(query, key, value, mask, options, kernel)


def added(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """A boolean mask as what is added to the scores, the only form the kernels take."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(~mask, -torch.inf)


def _composite(query, key, value, mask, options) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(query, key, value, mask, **options)


def _composite_gradients(inputs, mask, options, wanted, gradient) -> list[Tensor | None]:
    def run(query, key, value):
        return _composite(query, key, value, mask, options)

    return gradients_again(run, inputs, wanted, (gradient,))


def _fused_node(out: Tensor):
    """Torch's record of a fused kernel in what it recorded of a call, or None: it ran the composite."""
    node = out.grad_fn
    if node is None or node.name().startswith("ScaledDotProduct"):
        return node
    inner = node.next_functions[0][0]  # a kernel that takes certain widths only gave more columns than asked
    return inner if inner is not None and inner.name().startswith("ScaledDotProduct") else None


def _mended(gradients, outer):
    """A hook on that record: its gradients once more, by the composite, if they are to be differentiated."""
    node = torch._C._current_autograd_node() if torch.is_grad_enabled() else None
    if node is None or outer[0] is None:  # also where a compiled backward pass has no records any more
        return None
    query, key, value, mask = _saved(node)
    grouped = True if key.shape[-3] != query.shape[-3] else False  # noqa: SIM210 - heads may be symbols
    options = {"is_causal": node._saved_is_causal, "scale": node._saved_scale, "enable_gqa": grouped}
    wanted = [gradient is not None for gradient in gradients[:3]]
    found = _composite_gradients((query, key, value), mask, options, wanted, outer[0])
    return *found, *gradients[3:]


def _mended_on_cpu(gradients, outer):
    """The same, and once more, too, if norms are so large that their rounding shows."""
    if torch.is_grad_enabled():
        return _mended(gradients, outer)
    node = torch._C._current_autograd_node()
    if _ON_CPU is None or node is None or outer[0] is None:
        return None
    norms = node._saved_logsumexp
    if not _rounded(norms, outer[0]):
        return None
    kept, causal, scale = (node._saved_output, norms), node._saved_is_causal, node._saved_scale
    found = _ON_CPU.backward(outer[0], *_saved(node), kept, (), causal, scale)
    return tuple(None if old is None else new for old, new in zip(gradients, found, strict=False))


def _saved(node) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    mask = getattr(node, "_saved_attn_mask", None)
    return (
        node._saved_query,
        node._saved_key,
        node._saved_value,
        mask if mask is not None else getattr(node, "_saved_attn_bias", None),
    )


class _OnceFast(torch.autograd.Function):
    """A fused kernel and its fused backward; a backward to be differentiated itself runs the composite."""

    @staticmethod
    def forward(ctx, query, key, value, mask, options, kernel):
        ctx.options, ctx.kernel = options, kernel
        if kernel is not None:
            causal, scale = options["is_causal"], options["scale"]
            out, kept, ctx.sizes = kernel.forward(query, key, value, mask, causal, scale)
            ctx.save_for_backward(query, key, value, mask, out, *kept)
            return out
        ctx.save_for_backward(query, key, value, mask)
        with torch.enable_grad():
            ctx.inside = [x.detach().requires_grad_(x.requires_grad) for x in (query, key, value)]
            ctx.out = F.scaled_dot_product_attention(*ctx.inside, mask, **options)
        return ctx.out.detach()

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, mask, *kept = ctx.saved_tensors  # kept starts with the result
        options, wanted = ctx.options, ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            found = _composite_gradients((query, key, value), mask, options, wanted, gradient)
        elif ctx.kernel is not None:
            causal, scale = options["is_causal"], options["scale"]
            found = ctx.kernel.backward(gradient, query, key, value, mask, kept, ctx.sizes, causal, scale)
        else:
            needed = [x for x, needs in zip(ctx.inside, wanted, strict=True) if needs]
            inside = iter(torch.autograd.grad(ctx.out, needed, gradient, retain_graph=True))
            found = [next(inside) if needs else None for needs in wanted]
        return *found, None, None, None


class _Kernel(NamedTuple):
    """One of torch's kernels: which calls it takes as they are, and its two passes.

    forward(query, key, value, mask, causal, scale) gives the result and what to keep, tensors and sizes;
    backward takes the gradient, query, key, value, mask, the result, what was kept, causal and scale.
    """

    takes: Callable[..., bool]
    forward: Callable[..., tuple[Tensor, tuple, tuple]]
    backward: Callable[..., Any]


def _on_cpu(forward, backward) -> _Kernel:
    def run(query, key, value, mask, causal, scale):
        out, norms = forward(query, key, value, 0.0, causal, attn_mask=added(mask, query), scale=scale)
        return out, (norms,), ()

    def back(gradient, query, key, value, mask, kept, sizes, causal, scale):
        known = {"attn_mask": added(mask, query), "scale": scale}
        out, norms = kept
        if not _rounded(norms, query):
            return backward(gradient, query, key, value, out, norms, 0.0, causal, **known)
        # The weights are rebuilt as exp(score − norm), and a norm of 1e4 is rounded by 5e-4: a listener who
        # hears several keys alike would be wrong by as much. One more column takes the norm off its scores.
        width, dtype = query.shape[-1], query.dtype
        query, key, value, gradient = (x.float() for x in (query, key, value, gradient))
        query = torch.cat([query * scale, -norms[..., None]], -1)
        key, value, gradient = F.pad(key, (0, 1), value=1.0), F.pad(value, (0, 1)), F.pad(gradient, (0, 1))
        mask = added(mask, query)
        known = {"attn_mask": mask if mask is None else mask.float(), "scale": 1.0}
        out, norms = forward(query, key, value, 0.0, causal, **known)
        found = backward(gradient, query, key, value, out, norms, 0.0, causal, **known)
        by_query, by_key, by_value = (x[..., :width].to(dtype) for x in found)
        return by_query * scale, by_key, by_value

    return _Kernel(lambda query, mask, grouped: not grouped, run, back)


def _rounded(norms: Tensor, like: Tensor) -> bool:
    """Whether norms are so large that their rounding shows in gradients like this one."""
    low, high = torch.aminmax(norms)
    return max(-low.item(), high.item()) >= _LARGE[like.dtype]


# Where it does: by 1e-5 in float32, in the others by a quarter of their own precision.
_LARGE = {torch.float64: inf, torch.float32: 256.0, torch.float16: 4096.0, torch.bfloat16: 16384.0}


def _flash(forward, backward) -> _Kernel:
    def run(query, key, value, mask, causal, scale):
        out, norms, starts, stops, queries, keys, seed, offset, _ = forward(
            query, key, value, 0.0, causal, False, scale=scale
        )
        return out, (norms, starts, stops, seed, offset), (queries, keys)

    def back(gradient, query, key, value, mask, kept, sizes, causal, scale):
        out, norms, starts, stops, seed, offset = kept
        known = (out, norms, starts, stops, *sizes, 0.0, causal, seed, offset)
        return backward(gradient, query, key, value, *known, scale=scale)

    # Torch pads other widths before the kernel.
    return _Kernel(lambda query, mask, grouped: mask is None and query.shape[-1] % 8 == 0, run, back)


def _efficient(forward, backward) -> _Kernel:
    def run(query, key, value, mask, causal, scale):
        out, norms, seed, offset = forward(query, key, value, None, True, 0.0, causal, scale=scale)
        return out, (norms, seed, offset), ()

    def back(gradient, query, key, value, mask, kept, sizes, causal, scale):
        known = (None, *kept, 0.0, [True, True, True, False], causal)
        return backward(gradient, query, key, value, *known, scale=scale)[:3]

    # Torch aligns a mask in memory before the kernel.
    return _Kernel(lambda query, mask, grouped: mask is None and not grouped, run, back)


def _cudnn(forward, backward) -> _Kernel:
    def run(query, key, value, mask, causal, scale):
        out, norms, starts, stops, queries, keys, seed, offset, _ = forward(
            query, key, value, None, True, 0.0, causal, False, scale=scale
        )
        return out, (norms, seed, offset, starts, stops), (queries, keys)

    def back(gradient, query, key, value, mask, kept, sizes, causal, scale):
        out, norms, seed, offset, starts, stops = kept
        known = (out, norms, seed, offset, None, starts, stops, *sizes, 0.0, causal)
        return backward(gradient, query, key, value, *known, scale=scale)

    # Torch gives this kernel another number for −∞.
    return _Kernel(lambda query, mask, grouped: mask is None, run, back)


def _known(name: str, forward: str, backward: str):
    """Kernel and backward kernel by name, if this torch has them and they take what is passed here."""
    found = []
    for suffix, expected in (("", forward), ("_backward", backward)):
        packet = getattr(torch.ops.aten, f"_scaled_dot_product_{name}{suffix}", None)
        overload = getattr(packet, "default", None)
        if overload is None or [x.name for x in overload._schema.arguments] != expected.split():
            return None
        found.append(overload)
    return found


_SIGNATURES = (
    (
        ("cpu", SDPBackend.FLASH_ATTENTION),
        _on_cpu,
        "flash_attention_for_cpu",
        "query key value dropout_p is_causal attn_mask scale",
        "grad_out query key value out logsumexp dropout_p is_causal attn_mask scale",
    ),
    (
        ("cuda", SDPBackend.FLASH_ATTENTION),
        _flash,
        "flash_attention",
        "query key value dropout_p is_causal return_debug_mask scale",
        "grad_out query key value out logsumexp cum_seq_q cum_seq_k max_q max_k dropout_p is_causal "
        "philox_seed philox_offset scale",
    ),
    (
        ("cuda", SDPBackend.EFFICIENT_ATTENTION),
        _efficient,
        "efficient_attention",
        "query key value attn_bias compute_log_sumexp dropout_p is_causal scale",
        "grad_out_ query key value attn_bias out logsumexp philox_seed philox_offset dropout_p "
        "grad_input_mask is_causal scale",
    ),
    (
        ("cuda", SDPBackend.CUDNN_ATTENTION),
        _cudnn,
        "cudnn_attention",
        "query key value attn_bias compute_log_sumexp dropout_p is_causal return_debug_mask scale",
        "grad_out query key value out logsumexp philox_seed philox_offset attn_bias cum_seq_q cum_seq_k "
        "max_q max_k dropout_p is_causal scale",
    ),
)
_KERNELS: dict[tuple[str, int], _Kernel] = {}
for (_device, _backend), _made, *_wanted in _SIGNATURES:
    if _found := _known(*_wanted):
        _KERNELS[_device, _backend.value] = _made(*_found)
_ON_CPU = _KERNELS.get(("cpu", SDPBackend.FLASH_ATTENTION.value))
