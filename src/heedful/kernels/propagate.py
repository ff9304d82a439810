r"""The sum over incoming edges, and its two derivatives, which are the same sum seen from the other ends.

    form(x, w, g) = Σ_{e: j→i} Σ_h w_eh ⟨x_jh, g_ih⟩

    ∂form/∂g = propagate(graph, x, w)_i      = Σ_{e: j→i} w_eh x_jh
    ∂form/∂x = propagate(transpose, g, w)_j  = Σ_{e: j→i} w_eh g_ih
    ∂form/∂w = edge_dot(graph, g, x)_e       = ⟨g_ih, x_jh⟩

Each is linear in each argument, so every derivative of every order is made of these three; nothing per edge
and feature is ever stored. A graph comes as six tensors: `rowptr`, `col`, `edge` (slots grouped by target,
the source and the edge id of each slot) and the same for the transpose. The transpose may be None where no
gradient will be asked for. Shapes: x (sources, heads, features), w (edges, heads) or None for all ones, g
(targets, heads, features).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

from . import batching
from .compiling import differentiated
from .parallel import over_rows
from .sparse_operators import on_gpu, unobserved

LOW_PRECISION = (torch.float16, torch.bfloat16)


def propagate(
    rowptr: Tensor,
    col: Tensor,
    edge: Tensor,
    colptr: Tensor | None,
    row: Tensor | None,
    edge_transposed: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
) -> Tensor:
    """out[i, h] = Σ_s weight[edge[s], h] · x[col[s], h] over row i's slots s: (targets, heads, features)."""
    if torch.compiler.is_compiling() and differentiated():  # which operators do not go through
        return _propagate_plain(rowptr, col, edge, x, weight)
    if _differentiated(x, weight):
        return batching.apply(_Propagate, rowptr, col, edge, colptr, row, edge_transposed, x, weight)
    return _shortest(_propagate, x, weight)(rowptr, col, edge, colptr, row, edge_transposed, x, weight)


def edge_dot(
    rowptr: Tensor,
    col: Tensor,
    edge: Tensor,
    colptr: Tensor | None,
    row: Tensor | None,
    edge_transposed: Tensor | None,
    g: Tensor,
    x: Tensor,
) -> Tensor:
    """out[edge[s], h] = ⟨g[i, h], x[col[s], h]⟩ for every slot s of row i; (edges, heads)."""
    if torch.compiler.is_compiling() and differentiated():
        return _edge_dot_plain(rowptr, col, edge, g, x)
    if _differentiated(g, x):
        return batching.apply(_EdgeDot, rowptr, col, edge, colptr, row, edge_transposed, g, x)
    return _shortest(_edge_dot, g, x)(rowptr, col, edge, colptr, row, edge_transposed, g, x)


def _differentiated(a: Tensor, b: Tensor | None) -> bool:
    """Whether a Function must stand around the operator: it costs 40 µs, and Dynamo cannot trace its jvp."""
    if torch.compiler.is_compiling():
        return False
    wanted = torch.is_grad_enabled() and (a.requires_grad or (b is not None and b.requires_grad))
    return wanted or forward_ad._current_level >= 0 or torch._C._functorch.maybe_current_level() is not None


def _shortest(operator: Callable, a: Tensor, b: Tensor | None) -> Callable:
    """The operator, or where nobody watches torch's dispatcher what it runs: 20 µs less."""
    if torch.compiler.is_compiling() or not all(unobserved(x) for x in (a, b) if x is not None):
        return operator
    return _RUNS[operator]


def _sum_rows(
    rowptr: Tensor,
    col: Tensor,
    edge: Tensor,
    colptr: Tensor | None,
    row: Tensor | None,
    edge_transposed: Tensor | None,
    x: Tensor,
    weight: Tensor | None,
) -> Tensor:
    rows = rowptr.shape[0] - 1
    if on_gpu(x.device):
        from . import propagate_triton

        out = _room(x, rows)
        propagate_triton.propagate(rowptr, col, edge, x, weight, out)
        return out
    if x.dtype in LOW_PRECISION:
        wide = _sum_rows(
            rowptr, col, edge, None, None, None, x.float(), None if weight is None else weight.float()
        )
        return wide.to(x.dtype)
    if x.device.type != "cpu":
        return _propagate_plain(rowptr, col, edge, x, weight)

    x = x.contiguous()
    out = torch.empty(rows, *x.shape[1:], dtype=x.dtype)
    work = col.shape[0] * x.shape[1] * x.shape[2]
    add_weighted_rows, add_rows = _loops(work, x.shape[1], x.shape[2], weight is None)
    if weight is None:
        flat = (x.flatten(1).numpy(), out.flatten(1).numpy())
        over_rows(add_rows, rowptr.numpy(), col.numpy(), *flat, work=work)
    else:
        arrays = (col.numpy(), edge.numpy(), weight.contiguous().numpy(), x.numpy(), out.numpy())
        over_rows(add_weighted_rows, rowptr.numpy(), *arrays, work=work)
    return out


def _loops(work: int, heads: int, features: int, shared: bool):
    """(weighted, plain): compiled for this shape if that pays off, else those any shape can take."""
    from . import propagate_numba, propagate_shaped

    if shared:  # one weight for all heads, so they are just more features
        heads, features = 1, heads * features
    shaped = propagate_shaped.rows_for(heads, features) if work >= propagate_shaped.WORTH_A_SHAPE else None
    return shaped or (propagate_numba.add_weighted_rows, propagate_numba.add_rows)


def _dot_rows(
    rowptr: Tensor,
    col: Tensor,
    edge: Tensor,
    colptr: Tensor | None,
    row: Tensor | None,
    edge_transposed: Tensor | None,
    g: Tensor,
    x: Tensor,
) -> Tensor:
    if on_gpu(x.device):
        from . import propagate_triton

        return propagate_triton.edge_dot(rowptr, col, edge, g, x)
    if x.dtype in LOW_PRECISION:
        return _dot_rows(rowptr, col, edge, None, None, None, g.float(), x.float()).to(x.dtype)
    if x.device.type != "cpu":
        return _edge_dot_plain(rowptr, col, edge, g, x)

    from . import propagate_numba as kernels

    out = torch.empty(col.shape[0], x.shape[1], dtype=x.dtype)
    arrays = (col.numpy(), edge.numpy(), g.contiguous().numpy(), x.contiguous().numpy(), out.numpy())
    over_rows(kernels.dot_rows, rowptr.numpy(), *arrays, work=col.shape[0] * x.shape[1] * x.shape[2])
    return out


_propagate = torch.library.custom_op("heedful::propagate", _sum_rows, mutates_args=())
_edge_dot = torch.library.custom_op("heedful::edge_dot", _dot_rows, mutates_args=())
_RUNS = {_propagate: _sum_rows, _edge_dot: _dot_rows}


# Plain torch, for devices without a kernel of their own.


def _propagate_plain(rowptr: Tensor, col: Tensor, edge: Tensor, x: Tensor, weight: Tensor | None) -> Tensor:
    heard = x.index_select(0, col)
    if weight is not None:
        heard = heard * weight.index_select(0, edge).unsqueeze(-1)
    out = x.new_zeros(rowptr.shape[0] - 1, *x.shape[1:])
    return out.index_add(0, _row_of_slot(rowptr, col), heard)


def _edge_dot_plain(rowptr: Tensor, col: Tensor, edge: Tensor, g: Tensor, x: Tensor) -> Tensor:
    dots = (g.index_select(0, _row_of_slot(rowptr, col)) * x.index_select(0, col)).sum(-1)
    return torch.empty_like(dots).index_copy(0, edge.long(), dots)


def _row_of_slot(rowptr: Tensor, col: Tensor) -> Tensor:
    rows = torch.arange(rowptr.shape[0] - 1, device=rowptr.device)
    return rows.repeat_interleave(rowptr.diff(), output_size=col.shape[0])


@_propagate.register_fake
def _(rowptr, col, edge, colptr, row, edge_transposed, x, weight):
    return _room(x, rowptr.shape[0] - 1)


def _room(x: Tensor, rows: int) -> Tensor:
    """For the sums: on the GPU heads lie apart if those of x do."""
    _, heads, features = x.shape
    if on_gpu(x.device) and lie_apart(x):
        return x.new_empty(heads, rows, features).transpose(0, 1)
    return x.new_empty(rows, heads, features)


ROW = 64  # bytes that the GPU may as well read from here and there as from one place


def lie_apart(x: Tensor) -> bool:
    """Whether heads lie one behind the other, as the copies of a batch do, and may stay there: their rows are
    whole and not too short.
    """
    _, heads, features = x.shape
    whole = features * x.element_size() >= ROW and x.stride(2) == 1 and x.stride(0) >= features
    return heads > 1 and whole and x.stride(1) > x.stride(0)


@_edge_dot.register_fake
def _(rowptr, col, edge, colptr, row, edge_transposed, g, x):
    return x.new_empty(col.shape[0], x.shape[1])


# The rules of differentiation and batching, written once for the Functions (eager) and the operators
# (compiled).


def _save(ctx, inputs, output):
    _save_for_backward(ctx, inputs, output)
    ctx.save_for_forward(*(t for t in _needed(inputs) if t is not None))


def _save_for_backward(ctx, inputs, output):
    # Alone for the operators, whose context knows no forward mode.
    ctx.present = tuple(t is not None for t in _needed(inputs))
    ctx.save_for_backward(*(t for t in _needed(inputs) if t is not None))


def _needed(inputs):
    """Without weights nothing multiplies x, so no derivative will ask for it."""
    *graph, a, b = inputs
    return *graph, None if b is None else a, b


def _saved(ctx):
    tensors = iter(ctx.saved_tensors)
    *graph, a, b = (next(tensors) if here else None for here in ctx.present)
    return graph, a, b


def _transpose(graph):
    if graph[3] is None:
        raise RuntimeError(
            "propagate(): a gradient was asked for, but the graph came without its transpose. "
            "Pass colptr, row and edge_transposed, or call under torch.no_grad()."
        )
    return [*graph[3:], *graph[:3]]


def _propagate_backward(ctx, grad):
    graph, x, weight = _saved(ctx)
    grad_x = propagate(*_transpose(graph), grad, weight) if ctx.needs_input_grad[6] else None
    grad_weight = edge_dot(*graph, grad, x) if ctx.needs_input_grad[7] else None
    return *[None] * 6, grad_x, grad_weight


def _edge_dot_backward(ctx, grad):
    graph, g, x = _saved(ctx)
    grad_g = propagate(*graph, x, grad) if ctx.needs_input_grad[6] else None
    grad_x = propagate(*_transpose(graph), g, grad) if ctx.needs_input_grad[7] else None
    return *[None] * 6, grad_g, grad_x


def _propagate_vmap(call, info, in_dims, *inputs):
    graph, (x, weight), (x_dim, weight_dim) = _unbatched(in_dims, inputs), inputs[6:], in_dims[6:]
    if weight_dim is None and _stays(x, x_dim, weight):
        weight_dim, weight = 0, None if weight is None else weight.expand(info.batch_size, *weight.shape)
    if weight_dim is None:
        # The weights are shared by the batch, so the batch is just more features. It goes before them: rows
        # of features stay together, and a product that follows takes them as they lie.
        x = x.movedim(x_dim, 2)  # (sources, heads, batch, features)
        out = call(*graph, x.flatten(2), weight)
        return out.unflatten(2, x.shape[2:]), 2
    x = x.movedim(x_dim, 1) if x_dim is not None else x.unsqueeze(1).expand(-1, info.batch_size, -1, -1)
    weight = None if weight is None else weight.movedim(weight_dim, 1).flatten(1)  # (edges, batch · heads)
    return call(*graph, x.flatten(1, 2), weight).unflatten(1, x.shape[1:3]), 1


def _stays(x: Tensor, x_dim: int, weight: Tensor | None) -> bool:
    """Whether copies that share their weights are best read where they lie, though they could be more
    features. (Weights that learn would get a gradient for each.)
    """
    if not on_gpu(x.device) or (weight is not None and weight.requires_grad):
        return False
    one = x.movedim(x_dim, 1)  # (sources, batch, heads, features)
    return one.shape[2] == 1 and lie_apart(one.squeeze(2))


def _edge_dot_vmap(call, info, in_dims, *inputs):
    graph = _unbatched(in_dims, inputs)
    g, x = (
        t.movedim(dim, 1) if dim is not None else t.unsqueeze(1).expand(-1, info.batch_size, -1, -1)
        for t, dim in zip(inputs[6:], in_dims[6:], strict=True)
    )  # (nodes, batch, heads, features)
    return call(*graph, g.flatten(1, 2), x.flatten(1, 2)).unflatten(1, x.shape[1:3]), 1


def _unbatched(in_dims, inputs):
    if any(dim is not None for dim in in_dims[:6]):
        raise NotImplementedError("propagate(): vmap over the graph itself; use Graph.batch for many graphs.")
    return inputs[:6]


def _forward(operator):
    def forward(rowptr, col, edge, colptr, row, edge_transposed, a, b):
        return _shortest(operator, a, b)(rowptr, col, edge, colptr, row, edge_transposed, a, b)

    return staticmethod(forward)


class _Propagate(torch.autograd.Function):
    forward = _forward(_propagate)
    setup_context = staticmethod(_save)
    backward = staticmethod(_propagate_backward)
    vmap = staticmethod(partial(_propagate_vmap, propagate))

    @staticmethod
    def jvp(ctx, *tangents):
        graph, x, weight = _saved(ctx)
        dx, dweight = tangents[6:]
        parts = [propagate(*graph, dx, weight)] if dx is not None else []
        parts += [propagate(*graph, x, dweight)] if dweight is not None else []
        return sum(parts[1:], parts[0])


class _EdgeDot(torch.autograd.Function):
    forward = _forward(_edge_dot)
    setup_context = staticmethod(_save)
    backward = staticmethod(_edge_dot_backward)
    vmap = staticmethod(partial(_edge_dot_vmap, edge_dot))

    @staticmethod
    def jvp(ctx, *tangents):
        graph, g, x = _saved(ctx)
        dg, dx = tangents[6:]
        parts = [edge_dot(*graph, dg, x)] if dg is not None else []
        parts += [edge_dot(*graph, g, dx)] if dx is not None else []
        return sum(parts[1:], parts[0])


_propagate.register_autograd(_propagate_backward, setup_context=_save_for_backward)
_edge_dot.register_autograd(_edge_dot_backward, setup_context=_save_for_backward)
_propagate.register_vmap(partial(_propagate_vmap, _propagate))
_edge_dot.register_vmap(partial(_edge_dot_vmap, _edge_dot))


@register_flop_formula(torch.ops.heedful.propagate)
def _propagate_flops(rowptr, col, edge, colptr, row, edge_transposed, x, weight, *, out_shape=None, **_):
    return (1 if weight is None else 2) * col[0] * x[1] * x[2]


@register_flop_formula(torch.ops.heedful.edge_dot)
def _edge_dot_flops(rowptr, col, edge, colptr, row, edge_transposed, g, x, *, out_shape=None, **_):
    return 2 * col[0] * x[1] * x[2]
