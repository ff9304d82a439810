"""The operators behind sparse attention, forward and backward, as torch sees them; which loops run where."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from .dropout import kept_scale, threshold
from .parallel import over_rows


def _backend(device: torch.device) -> ModuleType:
    """Whose loops run on this device."""
    if on_gpu(device):
        from heedful.kernels import sparse_triton

        return sparse_triton
    if device.type == "cpu":
        from heedful.kernels import sparse_numba

        return sparse_numba
    raise NotImplementedError(
        f"sparse_attention(): there is no kernel for {device.type}; move the tensors to the CPU or to a CUDA "
        "device, or use sparse_composite, which runs anywhere but keeps every edge's values."
    )


def on_gpu(device: torch.device) -> bool:
    """Whether Triton's kernels run here."""
    return device.type == "cuda"


# A shape gets kernels of its own when a general one would take some 3 ms, so that many small odd shapes
# (tests, a notebook) never wait for the compiler. Rows wider than `WIDEST` spill the registers until
# little is won.
WORTH_A_SHAPE = 1 << 18
WIDEST = 4096  # bytes a row
WORTH_A_CALL = 1 << 17  # numbers read for edges: half a millisecond, against a tenth to come here


def _shaped(v: Tensor, key_features: int, edges: int) -> bool:
    heads, features = v.shape[1:]
    widest = heads * max(key_features, features) * v.element_size()
    fits = heads * features > 0 and heads <= 32 and widest <= WIDEST
    return fits and edges * heads * (key_features + features) >= WORTH_A_SHAPE


def _plain(kind: str, v: Tensor, edges: int, *extras: Tensor | None) -> bool:
    """Is this GAT without edge inputs, for `additive_kernels`? The usual sizes always have their own."""
    if kind != "additive" or any(t is not None for t in extras):
        return False
    if on_gpu(v.device):
        return True
    heads, features = v.shape[1:]
    usual = heads in (1, 2, 4, 8) and features in (8, 16, 32, 64)
    return (usual and heads * features * v.element_size() <= WIDEST) or _shaped(v, 1, edges)


def has_own_kernel(kind: str, v: Tensor, key_features: int, edges: int, *extras: Tensor | None) -> bool:
    """Whether the CPU has a kernel for just this shape, and calling it is not most of what it takes."""
    if v.device.type != "cpu" or edges * v.shape[1] * (key_features + v.shape[2]) < WORTH_A_CALL:
        return False
    return _plain(kind, v, edges, *extras) or _shaped(v, key_features, edges)


@cache
def _nothing(dtype: torch.dtype):
    return torch.empty(0, dtype=dtype).numpy()


def _flat(t: Tensor | None, dtype: torch.dtype):
    return _nothing(dtype) if t is None else t.contiguous().numpy().reshape(-1)


def _heads(t: Tensor | None) -> int:
    return 0 if t is None else t.shape[1]


def _indices(*indices: Tensor):
    """As NumPy, all of one type, so that each kernel is compiled for int32 or int64 and not for mixtures."""
    if any(t.dtype != indices[0].dtype for t in indices):
        indices = tuple(t.long() for t in indices)
    return [t.contiguous().numpy() for t in indices]


def _common(numba, kind, q, k, v, a, bias, weight, key, value, slope, degree, dropout, seed, implied):
    """The arguments all general kernels share, in their order."""
    t = v.dtype
    (M, H, dv), dk = v.shape, q.shape[2]
    return (
        numba.KINDS[kind], H, dk, dv, _flat(q, t), _flat(k, t), _flat(v, t), _flat(a, t),
        _flat(bias, t), _heads(bias), _flat(weight, t), _heads(weight), _flat(key, t), _heads(key),
        _flat(value, t), _heads(value), slope, degree, *_dropping(numba, dropout, seed), implied, M,
    )  # fmt: skip


def _dropping(numba, dropout, seed):
    seeds = _flat(seed if dropout else None, torch.int64)
    return seeds, numba.np.uint64(threshold(dropout)), kept_scale(dropout)


def forward_loops(
    kind: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor | None,
    rowptr: Tensor,
    col: Tensor,
    edge: Tensor,
    bias: Tensor | None,
    weight: Tensor | None,
    key: Tensor | None,
    value: Tensor | None,
    slope: float,
    degree: int,
    dropout: float,
    seed: Tensor | None,
    implied: bool,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(out, m, z, O⁺, P⁺); what backward will have no use for is empty."""
    outputs = _forward_outputs(kind, v, rowptr, col, bias, weight, key, value, save)
    if on_gpu(v.device):
        _backend(v.device).forward(
            kind, q, k, v, a, rowptr, col, edge, bias, weight, key, value,
            slope, degree, dropout, seed, implied, outputs,
        )  # fmt: skip
        return outputs
    numba = _backend(v.device)
    out, m, z, plus, plus_mass = outputs
    H, dv = v.shape[1:]
    index = _indices(rowptr, col, edge)
    work = 4 * col.shape[0] * H * (q.shape[2] + dv + 8)
    if _plain(kind, v, col.shape[0], bias, weight, key, value):
        kernel = numba.additive_kernels(H, dv)[0]
        over_rows(
            kernel, *index, q.contiguous().numpy(), k.contiguous().numpy(), v.contiguous().numpy(),
            *_dropping(numba, dropout, seed), implied, save, slope,
            out.numpy(), z.numpy(), plus.numpy(), plus_mass.numpy(), work=work,
        )  # fmt: skip
    else:
        common = _common(
            numba, kind, q, k, v, a, bias, weight, key, value, slope, degree, dropout, seed, implied
        )
        results = (_flat(t, v.dtype) for t in (out, m, z))
        if _shaped(v, q.shape[2], col.shape[0]):
            kernel = numba.shaped_kernels(kind, H, q.shape[2], dv)[0]
            over_rows(kernel, *index, *common[4:], *results, work=work)
        else:
            over_rows(numba.forward_rows, *index, *common, *results, work=work)
    return out, m, z, plus, plus_mass


forward = torch.library.custom_op("heedful::sparse_forward", forward_loops, mutates_args=())


def unobserved(v: Tensor) -> bool:
    """Whether the loops may be called past torch's dispatcher, which takes longer than starting them: nobody
    traces, counts, fakes or transforms.
    """
    return (
        not torch.compiler.is_compiling()  # which cannot look at what follows
        and type(v) is Tensor
        and not torch._C._functorch.is_legacy_batchedtensor(v)  # gradcheck has a vmap of its own
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.maybe_current_level() is None
    )


def _forward_outputs(kind, v, rowptr, col, bias, weight, key, value, save):
    N, (_, H, dv) = rowptr.shape[0] - 1, v.shape
    wide = torch.promote_types(v.dtype, torch.float32)  # what is summed in half precision's stead
    plain = _plain(kind, v, col.shape[0], bias, weight, key, value)
    out, z = v.new_empty((N, H, dv)), v.new_empty((N, H), dtype=wide)
    # The kernels are compiled for three and two dimensions, so what is not there has as many.
    m = v.new_empty((0, 0) if plain else (N, H), dtype=wide)
    plus = v.new_empty((N, H, dv) if plain and save else (0, 0, 0))
    plus_mass = v.new_empty((N, H) if plain and save else (0, 0), dtype=wide)
    return out, m, z, plus, plus_mass


@forward.register_fake
def _(
    kind, q, k, v, a, rowptr, col, edge, bias, weight, key, value, slope, degree, dropout, seed, implied, save
):
    return _forward_outputs(kind, v, rowptr, col, bias, weight, key, value, save)


@torch.library.custom_op("heedful::sparse_backward", mutates_args=())
def backward(
    kind: str,
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor | None,
    rowptr: Tensor,
    col: Tensor,
    edge: Tensor,
    colptr: Tensor | None,
    row: Tensor | None,
    edge_transposed: Tensor | None,
    bias: Tensor | None,
    weight: Tensor | None,
    key: Tensor | None,
    value: Tensor | None,
    slope: float,
    degree: int,
    dropout: float,
    seed: Tensor | None,
    implied: bool,
    out: Tensor,
    m: Tensor,
    z: Tensor,
    plus: Tensor,
    plus_mass: Tensor,
    needs: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of (q, k, v, a, bias, weight, key, value), those not needed empty."""
    return backward_loops(
        kind, gradient, q, k, v, a, rowptr, col, edge, colptr, row, edge_transposed, bias, weight, key, value,
        slope, degree, dropout, seed, implied, [out, m, z, plus, plus_mass], needs,
    )  # fmt: skip


def backward_loops(
    kind, gradient, q, k, v, a, rowptr, col, edge, colptr, row, edge_transposed, bias, weight, key, value,
    slope, degree, dropout, seed, implied, outputs, needs,
):  # fmt: skip
    """The same; the list of forward's outputs may be emptied as soon as they are not needed any more."""
    (M, H, dv), N, dtype = v.shape, rowptr.shape[0] - 1, v.dtype
    operands = (q, k, v, a, bias, weight, key, value)

    def by_speaker():
        if colptr is None:
            return build_transpose(rowptr, col, edge, M)
        return colptr, row, edge_transposed

    if on_gpu(v.device):
        return _backend(v.device).backward(
            kind, gradient, q, k, v, a, rowptr, col, edge, by_speaker, bias, weight, key, value,
            slope, degree, dropout, seed, implied, outputs, needs,
        )  # fmt: skip
    out, m, z, plus, plus_mass = outputs
    grads = gradient_outputs(operands, needs, v)
    numba = _backend(v.device)
    if kind == "uniform":
        for grad in grads[:2]:
            grad.zero_()
    work = 8 * col.shape[0] * H * (q.shape[2] + dv + 8)
    dropping = _dropping(numba, dropout, seed)
    if plus.shape[0] == N and plus.dim() == 3 and _plain(kind, v, col.shape[0], bias, weight, key, value):
        _, listeners, speakers = numba.additive_kernels(H, dv)
        g = gradient.contiguous().numpy()
        table = v.new_empty((N, 4, H)).numpy()
        dq, dk, dv_ = (grad if needed else torch.empty_like(t, memory_format=torch.contiguous_format)
                       for grad, needed, t in zip(grads, needs, operands[:3], strict=False))  # fmt: skip
        over_rows(
            listeners, *_indices(rowptr, col), g,
            *(t.contiguous().numpy() for t in (q, k, z, out, plus, plus_mass)),
            slope, table, dq.numpy(), work=8 * N * H * dv,
        )  # fmt: skip
        if needs[1] or needs[2]:
            over_rows(
                speakers, *_indices(*by_speaker()), table, g, k.contiguous().numpy(), v.contiguous().numpy(),
                *dropping, implied, slope, dk.numpy(), dv_.numpy(), work=work,
            )  # fmt: skip
        return grads
    common = _common(numba, kind, q, k, v, a, bias, weight, key, value, slope, degree, dropout, seed, implied)
    g = _flat(gradient, dtype)
    index = _indices(rowptr, col, edge)
    if _shaped(v, q.shape[2], col.shape[0]):
        _, listeners, rows, speakers = numba.shaped_kernels(kind, H, q.shape[2], dv)
        table = v.new_empty(N * 3 * H).numpy()
        over_rows(listeners, index[0], g, *(_flat(t, dtype) for t in (out, m, z)), table, work=4 * N * H * dv)
        shared = (*common[4:], g, table)
    else:
        rows, speakers = numba.backward_rows, numba.backward_columns
        D = v.new_empty(N * H).numpy()
        over_rows(numba.row_dots, index[0], g, _flat(out, dtype), H, dv, D, work=2 * N * H * dv)
        shared = (*common, g, _flat(m, dtype), _flat(z, dtype), D)
    dq, dk, dv_, da, *per_edge = (_flat(grad, dtype) for grad in grads)
    compares = kind != "uniform"
    if (needs[0] and compares) or any(needs[3:]):
        parts = q.new_empty(N * H * q.shape[2] if needs[3] else 0).numpy()
        over_rows(rows, *index, *shared, dq if compares else dq[:0], parts, *per_edge, work=work)
        if needs[3]:
            numba.sum_rows(parts, N, H * q.shape[2], da)
    if (needs[1] and compares) or needs[2]:
        over_rows(speakers, *_indices(*by_speaker()), *shared, dk if compares else dk[:0], dv_, work=work)
    return grads


def gradient_outputs(operands, needs, v):
    """Per-edge gradients start unset too: `Structure.edge` names every edge once, so all are written."""
    return tuple(
        v.new_empty(t.shape if needed and t is not None else (0,))
        for t, needed in zip(operands, needs, strict=True)
    )


@backward.register_fake
def _(kind, gradient, q, k, v, a, rowptr, col, edge, colptr, row, edge_transposed, bias, weight, key, value,
      slope, degree, dropout, seed, implied, out, m, z, plus, plus_mass, needs):  # fmt: skip
    return gradient_outputs((q, k, v, a, bias, weight, key, value), needs, v)


def _multiply_adds(v_shape, q_shape, col_shape) -> int:
    """Two FLOPs for each product in the scores and in the output, as torch counts its own attention."""
    return col_shape[0] * v_shape[1] * 2 * (q_shape[2] + v_shape[2])


@register_flop_formula(torch.ops.heedful.sparse_forward)
def _(kind, q, k, v, a, rowptr, col, *rest, out_shape=None, **options) -> int:
    return _multiply_adds(v, q, col)


@register_flop_formula(torch.ops.heedful.sparse_backward)
def _(kind, gradient, q, k, v, a, rowptr, col, *rest, out_shape=None, **options) -> int:
    """The scores once more, and two products for each of theirs and of the output's."""
    return 2 * _multiply_adds(v, q, col) + col[0] * v[1] * 4 * v[2]


def build_transpose(
    rowptr: Tensor, col: Tensor, edge: Tensor, speakers: int
) -> tuple[Tensor, Tensor, Tensor]:
    """(colptr, row, edge_transposed) of a CSR structure."""
    if on_gpu(col.device):
        return _backend(col.device).transpose(rowptr, col, edge, speakers)
    csr = tuple(t.contiguous() for t in (rowptr, col, edge))
    result = rowptr.new_empty(speakers + 1), torch.empty_like(csr[1]), torch.empty_like(csr[2])
    _backend(col.device).transpose(*(t.numpy() for t in (*csr, *result)))
    return result
