"""GAT over one table with a row [v | q | k] a node: what a layer's single product makes, on the GPU.

    out_i = Σ_j p_ij v_j + b,      p_ij = softmax_j leaky(q_i + k_j)

The same kernels as `sparse_attention("additive", …)`. Given side by side, q, k and v are made by one matrix
product and their gradients are written side by side for its backward pass: nothing is copied, cut or added up
in between, and b costs no pass of its own. For plain eager calls; others (vmap, forward mode, compile, second
derivatives) take q, k and v apart.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import sparse_operators
from .batching import alive
from .sparse import Structure, sparse_attention
from .twice import gradients_again


def packs(table: Tensor) -> bool:
    """Whether the call may go this way: on the GPU, and nobody traces, counts, fakes or transforms."""
    if (
        torch.compiler.is_compiling()
        or not sparse_operators.on_gpu(table.device)
        or forward_ad._current_level >= 0
    ):
        return False
    return sparse_operators.unobserved(table.detach() if isinstance(table, torch.nn.Parameter) else table)


def packed_attention(
    table: Tensor,
    heads: int,
    structure: Structure,
    *,
    bias: Tensor | None = None,
    slope: float = 0.2,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """(nodes, heads · dim) from a table (nodes, heads · (dim + 2)), a row holding v, then q, then k."""
    if dropout and seed is None:
        raise ValueError("packed_attention(): dropout needs a seed, a tensor of one int64.")
    return _Packed.apply(
        table, bias, heads, structure, float(slope), float(dropout), seed if dropout else None,
        torch.is_grad_enabled() and (table.requires_grad or (bias is not None and bias.requires_grad)),
    )  # fmt: skip


def parted(table: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """(q, k, v) as they lie in the table, (nodes, heads, 1 or dim)."""
    width = table.shape[1] - 2 * heads
    v, q, k = table.split((width, heads, heads), 1)
    return q.unsqueeze(-1), k.unsqueeze(-1), v.unflatten(1, (heads, -1))


def apart(table, heads, structure, bias, slope, dropout, seed) -> Tensor:
    """The same by `sparse_attention`: any derivative of any order."""
    q, k, v = parted(table, heads)
    out = sparse_attention("additive", q, k, v, structure, slope=slope, dropout=dropout, seed=seed).flatten(1)
    return out if bias is None else out + bias


class _Packed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, bias, heads, structure, slope, dropout, seed, save):
        from . import sparse_triton as triton

        table = table.contiguous()
        q, k, v = parted(table, heads)
        nodes, dim = table.shape[0], v.shape[2]
        out, kept = table.new_empty(nodes, heads * dim), _kept(table, heads, save)
        plus, mass, lse = _found_in(kept, heads)
        if nodes and dim:
            with triton.on(table.device):
                launch = triton.Launch(table, *alive(structure[:3]), out)
                dropping = triton._dropping(dropout, seed, heads, False)
                triton.plain_forward(
                    launch, q, k, v, bias, dropping, slope, (out, lse, plus, mass), (heads, dim)
                )
        ctx.settings = heads, structure, slope, dropout
        ctx.save_for_backward(table, bias, seed, out, *kept)
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx, gradient):
        if gradient is None:
            return (None,) * 8
        table, bias, seed, *saved = ctx.saved_tensors
        heads, structure, slope, dropout = ctx.settings
        needs = ctx.needs_input_grad
        if torch.is_grad_enabled():  # this will be differentiated again

            def run(table, bias):
                return apart(table, heads, structure, bias, slope, dropout, seed)

            return *gradients_again(run, (table, bias), needs[:2], (gradient,)), *(None,) * 6
        ctx.maybe_clear_saved_tensors()
        gradient = gradient.contiguous()
        if not needs[0] or not len(structure.col) or not gradient.numel():
            d_table = torch.zeros_like(table) if needs[0] else None
            return d_table, gradient.sum(0) if needs[1] else None, *(None,) * 6
        d_table, d_bias = _gradients(table, bias, seed, saved, gradient, needs[1], *ctx.settings)
        return d_table, d_bias, *(None,) * 6


def _kept(table: Tensor, heads: int, save: bool) -> list[Tensor]:
    """Room for what the backward pass asks for, [O⁺ | P⁺ | L] a node; in half precision apart, P⁺ and L wide.

    Side by side they lie as the gradients of v, q and k will, which then need no room of their own.
    """
    nodes, width = table.shape
    wide = torch.promote_types(table.dtype, torch.float32)
    if save and wide == table.dtype:
        return [torch.empty_like(table)]
    return [
        table.new_empty(nodes if save else 0, width - 2 * heads),
        table.new_empty(nodes, (1 + save) * heads, dtype=wide),
    ]


def _found_in(kept: list[Tensor], heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """(O⁺, P⁺, L)"""
    width = kept[0].shape[1] - (2 * heads if len(kept) == 1 else 0)
    return kept[0][:, :width], kept[-1][:, -2 * heads : -heads], kept[-1][:, -heads:]


def _gradients(table, bias, seed, saved, gradient, summed, heads, structure, slope, dropout):
    """Of the table and, if `summed`, of the bias."""
    from . import sparse_triton as triton

    q, k, v = parted(table, heads)
    sizes = heads, v.shape[2]
    out, *kept = saved
    saved.clear()
    plus, mass, lse = _found_in(kept, heads)
    # Each node's numbers are read before its gradients are written over them, unless they will be read again.
    over = len(kept) == 1 and not _kept_for_again()
    with triton.on(table.device):
        dropping = triton._dropping(dropout, seed, heads, False)
        launch = triton.Launch(table, *alive(structure[:3]), gradient)
        dq = mass if over else table.new_empty(len(table), heads)
        asked, sums = triton.plain_listeners(
            launch, gradient, q, bias, (out, lse, plus, mass), dq, slope, sizes, summed
        )
        del out, plus, mass, lse
        if over:
            d_table = kept.pop()
            _, dk, dv = parted(d_table, heads)
        else:
            kept.clear()
            d_table = torch.empty_like(table)
            dq_place, dk, dv = parted(d_table, heads)
            dq_place.squeeze(-1).copy_(dq)
        del dq
        transposed = alive(structure.colptr() if callable(structure.colptr) else structure[3:])
        launch = triton.Launch(table, *transposed, gradient)
        triton.plain_speakers(launch, gradient, asked, k, v, dk, dv, dropping, slope, sizes)
    return d_table, sums.sum(0).to(bias.dtype) if summed else None


def _kept_for_again() -> bool:
    """Whether this backward pass may be run again: what it was given must then stay as it is."""
    keeps = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)  # not a public name
    return keeps is None or keeps()
