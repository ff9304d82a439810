"""Attention over the edges of a graph, with no tensor the size of the edges.

    p_e = w_e s_e exp(l_e) / Σ_e' w_e' s_e' exp(l_e'),      out_i = Σ_{e = (i←j)} drop(p_e) (v_j + value_e)

The similarity gives s and l; bias_e is added to l, weight_e is w_e. With x = q_i and y = k_j + key_e:

    "additive"     l = leaky(x + y)           GAT (scalar q and k a head)
    "additive_v2"  l = Σ_d a_d leaky(x + y)_d GATv2
    "dot"          l = x · y                  softmax attention, its scale already in q
    "power"        s = (x · y)^degree         polynomial kernels
    "uniform"      neither                    the mean

Forward keeps each row's maximum m and normaliser z; backward computes the weights again from them. The
operators here are what torch sees (fakes, autograd, vmap, forward mode, compile); the loops are in
`sparse_numba.py`, and `_backend` is the seam where another device's go. `sparse_composite` is the same
function in plain torch: the judge in the tests, and what second derivatives and forward mode run through.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import eq
from typing import NamedTuple

import torch
from torch import Tensor

from . import batching, sparse_operators  # (registers torch.ops.heedful.sparse_forward and _backward)
from .compiling import differentiated_in_copies, pushed_forward
from .sparse_composite import sparse_composite

KINDS = ("additive", "additive_v2", "dot", "power", "uniform")
SETTINGS = 7  # kind, slope, degree, dropout, implied, save, lazy
OPERANDS = 8  # q, k, v, a, bias, weight, key, value: what can take a gradient


class Structure(NamedTuple):
    """Who listens to whom: edges by listener (CSR), and the same edges by speaker for the backward pass.

    `edge` and `edge_transposed` say which of the caller's edges stands in each place (each edge once).
    `colptr` may be a function that returns (colptr, row, edge_transposed), called by each backward pass
    (let it remember its answer), or None: then every backward pass sorts the edges again.
    """

    rowptr: Tensor  # (N+1,)
    col: Tensor  # (E,)
    edge: Tensor  # (E,)
    colptr: Tensor | Callable[[], tuple[Tensor, Tensor, Tensor]] | None = None  # (M+1,)
    row: Tensor | None = None  # (E,)
    edge_transposed: Tensor | None = None  # (E,)


def sparse_attention(
    kind: str,
    q: Tensor | None,
    k: Tensor | None,
    v: Tensor,
    structure: Structure,
    *,
    a: Tensor | None = None,
    bias: Tensor | None = None,
    weight: Tensor | None = None,
    key: Tensor | None = None,
    value: Tensor | None = None,
    slope: float = 0.2,
    degree: int = 2,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    implied: bool = False,
) -> Tensor:
    """out (N, H, dv) for q (N, H, dk), k (M, H, dk), v (M, H, dv); a (H, dk) for "additive_v2".

    Per edge, in the caller's order, with one head or H: bias and weight (E, ·), key (E, ·, dk), value
    (E, ·, dv). A listener without edges, or whose weights sum to exactly 0, gets 0. Dropout is a function of
    `seed` (one int64), the head and the caller's edge, or with `implied` the pair i·M + j. Half-precision
    inputs are computed in float32.
    """
    q, k = _checked(kind, q, k, v, structure, a, bias, weight, key, value, slope, degree, dropout, seed)
    operands = (q, k, v, a, bias, weight, key, value)
    given = [t for t in operands if t is not None]
    # The GPU's kernels read half precision and sum in float32; the CPU's know float32 and float64.
    dtype = v.dtype if sparse_operators.on_gpu(v.device) else torch.float32
    for t in given:
        dtype = torch.promote_types(dtype, t.dtype)
    if any(t.dtype != dtype for t in given):
        operands = tuple(t if t is None else t.to(dtype) for t in operands)
    save = torch.is_grad_enabled() and any(t.requires_grad for t in given)
    colptr, row, edge_transposed = structure[3:]
    if isinstance(colptr, Tensor) or colptr is None:
        lazy = None
    elif torch.compiler.is_compiling():
        lazy = None
        colptr, row, edge_transposed = colptr() if save else (None, None, None)
    else:
        lazy, colptr, row, edge_transposed = colptr, None, None, None
    arguments = (
        kind, float(slope), int(degree), float(dropout), bool(implied), save, lazy,
        *operands, seed if dropout else None, *structure[:3], colptr, row, edge_transposed,
    )  # fmt: skip
    if not torch.compiler.is_compiling():
        out = batching.apply(_Sparse, *arguments)[0]
    elif pushed_forward() or differentiated_in_copies():
        out = _composite_of(arguments[:SETTINGS], arguments[SETTINGS:], operands)
    else:
        out = _Compiled.apply(*arguments)[0]
    return out if out.dtype == v.dtype else out.to(v.dtype)


def _checked(kind, q, k, v, structure, a, bias, weight, key, value, slope, degree, dropout, seed):
    def fail(message):
        raise ValueError(f"sparse_attention(): {message}")

    if kind not in KINDS:
        fail(f"kind is {kind!r}; it must be one of {', '.join(KINDS)}.")
    if v.dim() != 3:
        fail(
            f"v has shape {tuple(v.shape)}; it must be (speakers, heads, features), batches folded into "
            "heads."
        )
    (M, H, dv), N, E = v.shape, structure.rowptr.shape[0] - 1, structure.col.shape[0]
    if kind == "uniform":
        q = v.new_empty((N, H, 0)) if q is None else q
        k = v.new_empty((M, H, 0)) if k is None else k
    if q is None or k is None:
        fail(f"{kind!r} needs q and k; only 'uniform' goes without.")
    dk = q.shape[-1]
    if tuple(q.shape) != (N, H, dk) or tuple(k.shape) != (M, H, dk):
        fail(
            f"q has shape {tuple(q.shape)} and k {tuple(k.shape)}; with {N} rows and v {tuple(v.shape)} "
            f"they must be ({N}, {H}, dk) and ({M}, {H}, dk)."
        )
    if kind == "additive" and dk != 1:
        fail(f"'additive' compares one number a head, q has {dk}. Use 'additive_v2' with a, or sum them.")
    if (a is not None) != (kind == "additive_v2"):
        fail(f"a is {'missing' if a is None else 'given'}; 'additive_v2' takes it and no other kind does.")
    if a is not None and tuple(a.shape) != (H, dk):
        fail(f"a has shape {tuple(a.shape)}; it must be ({H}, {dk}).")
    if kind == "uniform" and key is not None:
        fail("'uniform' compares nothing, so it takes no key.")
    per_edge = ("bias", bias, ()), ("weight", weight, ()), ("key", key, (dk,)), ("value", value, (dv,))
    for name, t, tail in per_edge:
        if t is None:
            continue
        # One by one: torch.compile does not find a length that varies in a tuple of them.
        shapes = (E, 1, *tail), (E, H, *tail)
        if not any(len(t.shape) == len(s) and all(map(eq, t.shape, s)) for s in shapes):
            fail(f"{name} has shape {tuple(t.shape)}; it must be {(E, 1, *tail)} or {(E, H, *tail)}.")
    if kind == "power" and degree < 1:
        fail(f"degree is {degree}; it must be an integer of at least 1.")
    if not 0 <= dropout <= 1:
        fail(f"dropout is {dropout}; it is a probability.")
    if dropout and seed is None:
        fail("dropout needs a seed, a tensor of one int64.")
    return q, k


class _Compiled(torch.autograd.Function):
    """What torch.compile traces. Dynamo takes no Function with a jvp, so the rest is in the subclass."""

    @staticmethod
    def forward(
        kind, slope, degree, dropout, implied, save, lazy, q, k, v, a, bias, weight, key, value, seed,
        rowptr, col, edge, colptr, row, edge_transposed,
    ):  # fmt: skip  # one by one, for Dynamo counts them to find out whether forward wants a ctx
        return torch.ops.heedful.sparse_forward(
            kind, q, k, v, a, rowptr, col, edge, bias, weight, key, value,
            slope, degree, dropout, seed, implied, save,
        )  # fmt: skip

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.settings = inputs[:SETTINGS]
        ctx.save_for_backward(*inputs[SETTINGS:], *output)
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, gradient, *_):
        if gradient is None:
            return (None,) * (SETTINGS + 15)
        needs = ctx.needs_input_grad[SETTINGS : SETTINGS + OPERANDS]
        return _placed(_backward_operator(ctx.settings, needs, gradient, *ctx.saved_tensors), needs)


def _placed(grads, needs):
    """Gradients in the places of forward's arguments: none for settings, seed and structure."""
    wanted = (grad if needed else None for grad, needed in zip(grads, needs, strict=True))
    return (*(None,) * SETTINGS, *wanted, *(None,) * 7)


def _backward_operator(
    settings, needs, gradient,
    q, k, v, a, bias, weight, key, value, seed, rowptr, col, edge, colptr, row, edge_transposed,
    out, m, z, plus, mass,
):  # fmt: skip
    kind, slope, degree, dropout, implied, _, _ = settings
    return torch.ops.heedful.sparse_backward(
        kind, gradient, q, k, v, a, rowptr, col, edge, colptr, row, edge_transposed, bias, weight, key, value,
        slope, degree, dropout, seed, implied, out, m, z, plus, mass, list(needs),
    )  # fmt: skip


def _backward_loops(
    settings, needs, gradient, outputs,
    q, k, v, a, bias, weight, key, value, seed, rowptr, col, edge, colptr, row, edge_transposed,
):  # fmt: skip
    kind, slope, degree, dropout, implied, _, _ = settings
    return sparse_operators.backward_loops(
        kind, gradient, q, k, v, a, rowptr, col, edge, colptr, row, edge_transposed, bias, weight, key, value,
        slope, degree, dropout, seed, implied, outputs, needs,
    )  # fmt: skip


class _Sparse(_Compiled):
    @staticmethod
    def forward(*arguments):
        if not sparse_operators.unobserved(arguments[SETTINGS + 2]):
            return _Compiled.forward(*arguments)
        kind, slope, degree, dropout, implied, save, _ = arguments[:SETTINGS]
        q, k, v, a, bias, weight, key, value, seed, rowptr, col, edge = arguments[SETTINGS:-3]
        return sparse_operators.forward_loops(
            kind, q, k, v, a, rowptr, col, edge, bias, weight, key, value,
            slope, degree, dropout, seed, implied, save,
        )  # fmt: skip

    @staticmethod
    def setup_context(ctx, inputs, output):
        _Compiled.setup_context(ctx, inputs, output)
        ctx.save_for_forward(*inputs[SETTINGS:], *output)

    @staticmethod
    def backward(ctx, gradient, *_):
        if gradient is None:
            return (None,) * (SETTINGS + 15)
        needs = ctx.needs_input_grad[SETTINGS : SETTINGS + OPERANDS]
        saved, lazy = list(ctx.saved_tensors), ctx.settings[6]
        if lazy is not None:
            saved[12:15] = lazy()
        if not torch.is_grad_enabled() and sparse_operators.unobserved(gradient):
            # Nobody differentiates this again, so forward's outputs go as soon as the loops are through with
            # them, unless the graph is to be kept.
            ctx.maybe_clear_saved_tensors()
            outputs, saved = saved[15:], saved[:15]
            return _placed(_backward_loops(ctx.settings, needs, gradient, outputs, *saved), needs)
        # A Function of its own, so that it can be differentiated again; torch.func always asks for that.
        return _placed(batching.apply(_Gradient, ctx.settings, needs, gradient, *saved), needs)

    @staticmethod
    def jvp(ctx, *tangents):
        saved = ctx.saved_tensors
        operands, tangents = saved[:OPERANDS], tangents[SETTINGS : SETTINGS + OPERANDS]
        moving = [n for n, t in enumerate(tangents) if t is not None]

        def function(*moved):
            return _composite_of(ctx.settings, saved, _replaced(operands, moving, moved))

        tangent = _push(function, [operands[n] for n in moving], [tangents[n] for n in moving])
        return tangent, None, None, None, None

    @staticmethod
    def vmap(info, in_dims, *arguments):
        *settings, save, lazy = arguments[:SETTINGS]
        tensors, dims = arguments[SETTINGS:], in_dims[SETTINGS:]
        # Inside vmap nothing says that it wants a gradient; here, outside, it does.
        wanted = any(t is not None and t.requires_grad for t in tensors[:OPERANDS])
        settings = [*settings, save or (torch.is_grad_enabled() and wanted), lazy]
        if _better_apart(settings[0], tensors, dims):
            copies = [_Sparse.apply(*settings, *_picked(tensors, dims, n)) for n in range(info.batch_size)]
            return _stacked(copies, save)
        tensors = _folded(info.batch_size, _heads_within(tensors[2], dims[2]), dims, tensors)
        return _unfolded(_Sparse.apply(*settings, *tensors), info.batch_size)


class _Gradient(torch.autograd.Function):
    """The backward pass as a function of its own: fused itself, its derivatives through the composite.

    m, z, O⁺ and P⁺ are functions of the operands, so all of the derivative goes to the gradient and the
    operands.
    """

    @staticmethod
    def forward(*arguments):
        return _backward_operator(*arguments)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.settings, ctx.needs = inputs[:2]
        ctx.save_for_backward(*inputs[2:])
        ctx.save_for_forward(*inputs[2:])
        ctx.set_materialize_grads(False)

    @staticmethod
    def _function(ctx, wanted, chosen):
        """(gradient, *operands)[chosen] to the gradients `wanted`, by the composite."""
        variables, saved = ctx.saved_tensors[: 1 + OPERANDS], ctx.saved_tensors[1:]

        def function(*values):
            gradient, *operands = _replaced(variables, chosen, values)

            def out(*picked):
                return _composite_of(ctx.settings, saved, _replaced(operands, wanted, picked))

            return torch.func.vjp(out, *(operands[n] for n in wanted))[1](gradient)

        return function, [variables[n] for n in chosen]

    @staticmethod
    def backward(ctx, *gradients):
        wanted = [n for n, g in enumerate(gradients) if g is not None and ctx.needs[n]]
        chosen = [n for n in range(1 + OPERANDS) if ctx.needs_input_grad[2 + n]]
        result = [None] * (1 + OPERANDS)
        if wanted:
            function, primals = _Gradient._function(ctx, wanted, chosen)
            pulled = torch.func.vjp(function, *primals)[1](tuple(gradients[n] for n in wanted))
            result = _replaced(result, chosen, pulled)
        return (None, None, *result, *(None,) * 12)

    @staticmethod
    def jvp(ctx, *tangents):
        tangents = tangents[2 : 3 + OPERANDS]
        wanted = [n for n in range(OPERANDS) if ctx.needs[n]]
        chosen = [n for n, t in enumerate(tangents) if t is not None]
        function, primals = _Gradient._function(ctx, wanted, chosen)
        pushed = _push(function, primals, [tangents[n] for n in chosen])
        empty = ctx.saved_tensors[1].new_empty(0)
        return tuple(_replaced([empty] * OPERANDS, wanted, pushed))

    @staticmethod
    def vmap(info, in_dims, settings, needs, gradient, *saved):
        size, dims = info.batch_size, in_dims[3:]
        if _better_apart(settings[0], saved, dims):  # as forward went, whose rows these are
            tensors = gradient, *saved
            copies = [
                _Gradient.apply(settings, needs, *_picked(tensors, in_dims[2:], n)) for n in range(size)
            ]
            grads = [
                torch.stack(parts) if needed else parts[0]
                for parts, needed in zip(zip(*copies, strict=True), needs, strict=True)
            ]
            return tuple(grads), tuple(0 if needed else None for needed in needs)
        H = _heads_within(saved[2], dims[2])
        gradient = _nodes(size, gradient, in_dims[2])
        tensors = _folded(size, H, dims, saved, needs)
        outputs = _Gradient.apply(settings, needs, gradient, *tensors)
        grads, places = [], []
        for n, grad in enumerate(outputs):
            if not needs[n]:
                grads, places = [*grads, grad], [*places, None]
            elif n == 3:  # a (H, dk)
                grads, places = [*grads, grad.unflatten(0, (size, H))], [*places, 0]
            else:
                grad = grad.unflatten(1, (size, H))
                if n > 3 and _heads_within(saved[n], dims[n]) == 1:
                    grad = grad.sum(2, keepdim=True)
                grads, places = [*grads, grad], [*places, 1]
        return tuple(grads), tuple(places)


def _replaced(values, places, by):
    values = list(values)
    for place, new in zip(places, by, strict=True):
        values[place] = new
    return values


def _push(function, primals, tangents):
    """The directional derivative by two pullbacks (u ↦ uᵀJ is linear; pull t back through it): reverse
    mode only, so it can run inside a forward-mode level.
    """
    shape, _ = torch.func.vjp(function, *primals)
    one = isinstance(shape, Tensor)

    def pulled(*u):
        return torch.func.vjp(function, *primals)[1](u[0] if one else u)

    zeros = [torch.zeros_like(t) for t in ((shape,) if one else shape)]
    pushed = torch.func.vjp(pulled, *zeros)[1](tuple(tangents))
    return pushed[0] if one else pushed


def _composite_of(settings, saved, operands):
    kind, slope, degree, dropout, implied, _, _ = settings
    dtype = operands[2].dtype
    wide = torch.promote_types(dtype, torch.float32)
    q, k, v, a, bias, weight, key, value = (t if t is None else t.to(wide) for t in operands)
    return sparse_composite(
        kind, q, k, v, Structure(*saved[9:12]), a=a, bias=bias, weight=weight, key=key, value=value,
        slope=slope, degree=degree, dropout=dropout, seed=saved[8], implied=implied,
    ).to(dtype)  # fmt: skip


def _heads_within(t, dim):
    """Heads of a (…, H, …) tensor, its batch dimension not counted."""
    shape = list(t.shape)
    if dim is not None:
        del shape[dim]
    return shape[1]


def _nodes(size, t, dim):
    """(B, N, H, …) to (N, B·H, …)"""
    t = t.unsqueeze(1).expand(-1, size, *t.shape[1:]) if dim is None else t.movedim(dim, 1)
    return t.flatten(1, 2)


def _folded(size, H, dims, tensors, needs=None):
    """q k v a bias weight key value seed, six of structure, (in backward) out m z O⁺ P⁺, with B·H heads."""
    folded = []
    for n, (t, dim) in enumerate(zip(tensors, dims, strict=True)):
        if t is None or (n >= 15 and t.numel() == 0 and t.shape[0] == 0):
            folded.append(t)
        elif n in (0, 1, 2) or n >= 15:
            folded.append(_nodes(size, t, dim))
        elif n in (3, 8):  # a (H, dk), seed (S,): each copy has its own, and counts its heads from 0
            t = t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)
            folded.append(t.flatten(0, 1))
        elif n < 8:
            if dim is None and t.shape[1] == 1 and not (needs and needs[n]):
                folded.append(t)
                continue
            t = t.unsqueeze(1).expand(-1, size, *t.shape[1:]) if dim is None else t.movedim(dim, 1)
            folded.append(t.expand(-1, -1, H, *t.shape[3:]).flatten(1, 2))
        elif dim is not None:
            raise ValueError("sparse_attention(): vmap cannot go over the structure; make one graph of many.")
        else:
            folded.append(t)
    return folded


def _better_apart(kind, tensors, dims) -> bool:
    """Whether copies go one by one: to the kernel of their shape, rather than all to one for any shape (or to
    one that is compiled for their number). Not worth it where calling takes longer than computing.
    """
    q, v, col = tensors[0], tensors[2], tensors[10]
    if dims[0] is None or dims[2] is None or any(dim is not None for dim in dims[9:15]):
        return False
    return sparse_operators.has_own_kernel(
        kind, v.select(dims[2], 0), q.select(dims[0], 0).shape[2], col.shape[0], *tensors[4:8]
    )


def _picked(tensors, dims, n):
    """The n-th copy of each."""
    return [t if dim is None else t.select(dim, n) for t, dim in zip(tensors, dims, strict=True)]


def _stacked(copies, saved):
    """(B, N, H, …); what only backward uses is stacked if a function transform is going to look at it."""
    out, places = [], []
    for n, parts in enumerate(zip(*copies, strict=True)):
        whole = n == 0 or (saved and parts[0].shape[0] > 0)
        out.append(torch.stack(parts) if whole else parts[0])
        places.append(0 if whole else None)
    return tuple(out), tuple(places)


def _unfolded(outputs, size):
    """(N, B·H, …) to (N, B, H, …); what was not saved stays as it is."""
    out, places = [], []
    for n, t in enumerate(outputs):
        absent = n > 0 and t.shape[0] == 0
        out.append(t if absent else t.unflatten(1, (size, -1)))
        places.append(None if absent else 1)
    return tuple(out), tuple(places)
