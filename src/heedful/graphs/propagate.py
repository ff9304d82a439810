"""out_i = Σ_{j→i} w_ij x_j for x of any leading shape: fold x to the kernel's layout, unfold the answer."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.kernels import batching
from heedful.kernels import propagate as kernels
from heedful.kernels.propagate import propagate as kernel

from . import check

if TYPE_CHECKING:
    from .graph import Graph


def propagate(graph: Graph, x: Tensor, weight: Tensor | None) -> Tensor:
    """The sum over what each node hears, times `weight` if there is one; see `Graph.propagate`."""
    if batching.only_vmap():
        with torch._C.DisableTorchFunction():  # stacked seeds watch for what draws; nothing does here
            return _propagate(graph, x, weight, copies=not kernels.on_gpu(x.device))
    return _propagate(graph, x, weight)


def _propagate(graph: Graph, x: Tensor, weight: Tensor | None, *, copies: bool = False) -> Tensor:
    check.features(x, graph.sources, graph.device, where="propagate()")
    structure = graph.structure
    # Without gradients nobody will need the transpose, and building it costs a sort.
    backward: tuple[Tensor | None, Tensor | None, Tensor | None] = (
        structure.backward if torch.is_grad_enabled() else (None, None, None)
    )
    if x.dim() == 2 and (weight is None or (weight.dim() == 1 and weight.dtype == x.dtype)):
        if copies and any(torch._C._functorch.is_batchedtensor(t) for t in (x, weight) if t is not None):
            return batching.apply(_Copies, x, weight, (*structure.forward, *backward))
        weight = None if weight is None else weight.unsqueeze(1)
        return kernel(*structure.forward, *backward, x.unsqueeze(1), weight).squeeze(1)
    rest, heads, x, weight = _align(x, weight)
    r, k, width = len(rest), len(heads), x.shape[-1]
    # One edge gathers one contiguous row: the node, then the weighted dimensions, then all that share them.
    x = x.permute(r + k, *range(r, r + k), *range(r), r + k + 1)
    x = x.reshape(graph.sources, prod(heads), prod(rest) * width)
    if weight is not None:
        weight = weight.reshape(prod(heads), graph.edges).T
    out = kernel(*structure.forward, *backward, x, weight)
    out = out.reshape(graph.targets, *heads, *rest, width)
    return out.permute(*range(1 + k, 1 + k + r), *range(1, 1 + k), 0, 1 + k + r)


class _Copies(torch.autograd.Function):
    """The sum for copies of x, of its weights or of both. Its rule for vmap is all it is made for: it lays
    them out for the kernel at once, where vmap would turn around whatever one does to a copy.
    """

    @staticmethod
    def forward(x, weight, slots):
        raise RuntimeError("propagate(): these copies are under no vmap.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, x, weight, slots):
        own, differ = in_dims[:2]
        x = x.unsqueeze(1).expand(-1, info.batch_size, -1) if own is None else x.movedim(own, 1)
        if differ is not None:
            return kernel(*slots, x, weight.movedim(differ, 1)), 1
        # The weights are shared, so copies are just more features.
        shared = None if weight is None else weight.unsqueeze(1)
        out = kernel(*slots, x.flatten(1).unsqueeze(1), shared)
        return out.view(len(out), *x.shape[1:]), 1


def _align(x: Tensor, weight: Tensor | None):
    """Broadcast x to (*rest, *heads, sources, features) and weight to (*heads, edges), in one dtype."""
    lead = x.shape[:-2]
    if weight is None:
        return lead, (), x, None
    dtype = torch.promote_types(x.dtype, weight.dtype)
    x, weight = x.to(dtype), weight.to(dtype)
    if weight.dim() == 1:
        return lead, (), x, weight
    try:
        lead = torch.broadcast_shapes(lead, weight.shape[:-1])
    except RuntimeError:
        raise ValueError(
            f"propagate(): x has shape {tuple(x.shape)} and weight {tuple(weight.shape)}; "
            "what stands before (nodes, features) in x and before (edges) in weight must broadcast."
        ) from None
    while weight.dim() > 1 and weight.shape[0] == 1:
        weight = weight[0]
    rest = len(lead) - weight.dim() + 1
    heads = lead[rest:]
    return lead[:rest], heads, x.expand(*lead, *x.shape[-2:]), weight.expand(*heads, weight.shape[-1])
