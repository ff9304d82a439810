"""GAT of many copies of a layer at once, on the GPU: what `vmap` over seeds makes of a layer.

    out_i = Σ_j p_ij z_j + b,      p_ij = softmax_j leaky(l·z_i + s·z_j)

The same kernels as `sparse_attention("additive", …)`, with the copies as more heads. Copies stay where a
batched product puts them, one behind the other, and their gradients go where its backward pass wants them:
nothing is turned over or added up in between. l·z and s·z are made on the way through z, as are the gradients
of l and s, and the part of z's gradient that comes through them is added where the rest is made. For a
layer's x that is sparse this is less than a product with [W | W l | W s] (`gat_packed.py`), where every
nonzero would have a quarter more columns. Of inputs in half precision l·z and s·z stay in float32: rounded,
a score near 0 would change its sign or lose it, and with that its slope.

For one vmap and nothing else; others (torch.func's derivatives, forward mode, compile) go the general way.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import batching, sparse_operators
from .batching import alive
from .sparse import Structure, sparse_attention
from .twice import gradients_again


def stacks(table: Tensor) -> bool:
    """Whether the call may go this way: on the GPU, under vmap, and nobody else looks."""
    return (
        not torch.compiler.is_compiling()
        and sparse_operators.on_gpu(table.device)
        and forward_ad._current_level < 0
        and torch._C._len_torch_dispatch_stack() == 0
        and batching.only_vmap()
    )


def stacked_attention(
    z: Tensor,
    listener: Tensor,
    speaker: Tensor,
    structure: Structure,
    *,
    bias: Tensor | None = None,
    slope: float = 0.2,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """(nodes, heads · dim) of z (nodes, heads · dim), l and s (heads, dim), b (heads · dim), under vmap."""
    if dropout and seed is None:
        raise ValueError("stacked_attention(): dropout needs a seed, a tensor of one int64.")
    return batching.apply(
        _Copies,
        z,
        listener,
        speaker,
        bias,
        seed if dropout else None,
        structure,
        float(slope),
        float(dropout),
    )


def of_copies(
    z: Tensor, listener: Tensor, speaker: Tensor, bias: Tensor | None, seeds: Tensor | None,
    structure: Structure, slope: float = 0.2, dropout: float = 0.0,
) -> Tensor:  # fmt: skip
    """(copies, nodes, heads · dim) of the same with a dimension of copies in front; a seed for each."""
    z = z if z.stride(2) == 1 else z.contiguous()
    inputs = z, *(t if t is None else t.contiguous() for t in (listener, speaker, bias))
    save = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in inputs)
    return _Stacked.apply(*inputs, seeds, structure, slope, dropout, save)


def apart(z, listener, speaker, bias, seeds, structure, slope, dropout) -> Tensor:
    """`of_copies` by `sparse_attention`: any derivative of any order."""
    copies, heads, dim = listener.shape
    v = z.unflatten(-1, (heads, dim)).permute(1, 0, 2, 3)  # (nodes, copies, heads, dim)
    q, k = ((v * vector).sum(-1, keepdim=True).flatten(1, 2) for vector in (listener, speaker))
    out = sparse_attention(
        "additive", q, k, v.flatten(1, 2), structure, slope=slope, dropout=dropout, seed=seeds
    )
    out = out.unflatten(1, (copies, heads)).transpose(0, 1).flatten(2)
    return out if bias is None else out + bias.unsqueeze(1)


class _Copies(torch.autograd.Function):
    """The step out of vmap, which is all it is made for."""

    @staticmethod
    def forward(z, listener, speaker, bias, seed, structure, slope, dropout):
        front = (t if t is None else t.unsqueeze(0) for t in (z, listener, speaker, bias))
        return of_copies(*front, seed, structure, slope, dropout).squeeze(0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, z, listener, speaker, bias, seed, structure, slope, dropout):
        front = [
            t if t is None else t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)
            for t, dim in zip((z, listener, speaker, bias, seed), in_dims, strict=False)
        ]
        seeds = front.pop()
        seeds = None if seeds is None else seeds.reshape(-1).contiguous()
        return of_copies(*front, seeds, structure, slope, dropout), 0


class _Stacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, listener, speaker, bias, seeds, structure, slope, dropout, save):
        from . import gat_stacked_triton, sparse_triton

        (copies, nodes, width), (_, heads, dim) = z.shape, listener.shape
        wide = torch.promote_types(z.dtype, torch.float32)
        out = z.new_empty(copies, nodes, width)
        near = z.new_empty(copies, nodes, 2 * heads, dtype=wide)  # q and k
        lse = z.new_empty(copies, nodes, heads, dtype=wide)
        plus = z.new_empty(copies if save else 0, nodes, width)
        mass = z.new_empty(copies if save else 0, nodes, heads, dtype=wide)
        if out.numel():
            with sparse_triton.on(z.device):
                launch = sparse_triton.Launch(z, *alive(structure[:3]), out)
                gat_stacked_triton.scored(launch, z, listener, speaker, near)
                dropping = sparse_triton._dropping(dropout, seeds, copies * heads, False)
                sparse_triton.plain_forward(
                    launch, near, near[..., heads:], z, bias, dropping, slope, (out, lse, plus, mass),
                    (heads, dim), copies,
                )  # fmt: skip
        ctx.settings = structure, slope, dropout
        ctx.save_for_backward(z, listener, speaker, bias, seeds, near, out, lse, plus, mass)
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx, gradient):
        if gradient is None:
            return (None,) * 9
        z, listener, speaker, bias, seeds, near, *outputs = ctx.saved_tensors
        inputs, needs = (z, listener, speaker, bias), ctx.needs_input_grad[:4]
        if torch.is_grad_enabled():  # this will be differentiated again

            def run(z, listener, speaker, bias):
                return apart(z, listener, speaker, bias, seeds, *ctx.settings)

            return *gradients_again(run, inputs, needs, (gradient,)), *(None,) * 5
        ctx.maybe_clear_saved_tensors()
        found = _gradients(*inputs, seeds, near, outputs, gradient.contiguous(), needs, *ctx.settings)
        found = (grad if needed else None for grad, needed in zip(found, needs, strict=True))
        return *found, *(None,) * 5


def _gradients(
    z, listener, speaker, bias, seeds, near, outputs, gradient, needs, structure, slope, dropout
):  # fmt: skip
    """Of z, l, s and b; None for those that nobody needs, but for l and s that come together."""
    from . import gat_stacked_triton, sparse_triton

    if not len(structure.col) or not gradient.numel() or not any(needs[:3]):
        nothing = (torch.zeros_like(t) if needed else None for t, needed in zip(
            (z, listener, speaker), needs, strict=False))  # fmt: skip
        return *nothing, gradient.sum(1) if needs[3] else None
    copies, *sizes = listener.shape
    heads = sizes[0]
    with sparse_triton.on(z.device):
        dropping = sparse_triton._dropping(dropout, seeds, copies * heads, False)
        launch = sparse_triton.Launch(z, *alive(structure[:3]), gradient)
        d_near, d_bias = torch.empty_like(near), None
        table, sums = sparse_triton.plain_listeners(
            launch, gradient, near, bias, outputs, d_near, slope, sizes, needs[3], copies
        )
        if needs[3]:
            d_bias = sums.view(copies, -1, z.shape[2]).sum(1).to(bias.dtype)
        outputs.clear()
        dz = torch.empty_like(z)
        transposed = alive(structure.colptr() if callable(structure.colptr) else structure[3:])
        launch = sparse_triton.Launch(z, *transposed, gradient)
        sparse_triton.plain_speakers(
            launch, gradient, table, near[..., heads:], z, d_near[..., heads:], dz, dropping, slope, sizes,
            (listener, speaker, d_near), copies,
        )  # fmt: skip
        d_vectors = [None, None]
        if needs[1] or needs[2]:
            d_vectors = gat_stacked_triton.of_vectors(launch, z, d_near, sizes).to(z.dtype).unbind(1)
    return dz, *d_vectors, d_bias
