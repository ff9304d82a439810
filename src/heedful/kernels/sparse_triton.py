"""The GPU half of sparse attention: tile sizes, buffers and launches.

Two families of kernels: plain GAT (`sparse_additive_triton`) and anything (`sparse_general_triton`). Inputs
may be float16, bfloat16, float32 or float64; sums are taken in float32, in float64 for float64. What a
problem is cut into follows from its shape alone, so a result is the same bits each time.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from . import sparse_additive_triton as additive
from . import sparse_general_triton as general
from .dropout import kept_scale, threshold
from .rows_triton import add_parts
from .sparse_operators import gradient_outputs


class Shape(NamedTuple):
    """What a kernel is compiled for: powers of two around the sizes, and how much a program takes at once."""

    heads: int  # a program
    keys: int
    features: int
    blocks: int  # of heads
    tile: int  # edges at once
    key_lanes: int  # of them side by side in a warp
    lanes: int
    warps: int


@cache
def shape_of(heads: int, keys: int, features: int, item: int, most: int = 8, widest: int = 256) -> Shape:
    """Up to 256 features a program, or `widest`, eight edges at once, or `most`."""
    keys, features = (triton.next_power_of_2(max(n, 1)) for n in (keys, features))
    width = max(features, keys)
    together = min(triton.next_power_of_2(heads), max(1, widest // width))
    side = lanes(together * features, item)
    tile = max(most, side)
    key_side, warps = min(tile, lanes(together * keys, item)), min(8, max(1, together * width // 256))
    return Shape(together, keys, features, triton.cdiv(heads, together), tile, key_side, side, warps)


# Edges at once and features a program, of copies. Eight and 256 of many narrow heads do not fit the registers
# (255, and 90 to 270 bytes spilled for 32 heads of 8), and take as many instructions as four and 128 (96).
COPIES = 4, 128


def lanes(row: int, item: int) -> int:
    """Edges side by side in a warp, whose threads read 16 bytes each of rows of so many numbers."""
    return min(32, max(1, 512 // (row * item)))


@cache
def split_of(edges: int) -> int:
    """Rows with more edges than this are cut up: enough that few are, few enough that none is waited for."""
    return min(1024, max(256, triton.next_power_of_2(edges >> 14)))


def _plain(kind: str, *extras: Tensor | None) -> bool:
    """Is this GAT without edge inputs?"""
    return kind == "additive" and all(t is None for t in extras)


NARROW = 2**31  # offsets below need 32 bits only
_LONGEST = WeakTensorKeyDictionary()


def longest(pointers: Tensor) -> int:
    """Edges of the longest row, asked of the GPU once a structure; while nobody may wait, any number."""
    found = _LONGEST.get(pointers)
    if found is None:
        if pointers.is_cuda and torch.cuda.is_current_stream_capturing():
            return 1 << 62
        found = int(pointers.diff().max())
        _LONGEST[pointers] = found
    return found


class Launch:
    """What the launches over one structure share."""

    def __init__(self, v: Tensor, pointers: Tensor, others: Tensor, edge: Tensor, *sized: Tensor | None):
        self.rows, self.edges = pointers.shape[0] - 1, others.shape[0]
        if not pointers.dtype == others.dtype == edge.dtype:
            pointers, others, edge = pointers.long(), others.long(), edge.long()
        self.index = tuple(t.contiguous() for t in (pointers, others, edge))
        self.split = split_of(self.edges)
        self.chunks = triton.cdiv(self.edges, self.split) if longest(pointers) > self.split else 0
        self.v, self.sum = v, torch.promote_types(v.dtype, torch.float32)
        largest = max(t.numel() for t in (v, *sized) if t is not None)
        self.common = {
            "ACC": tl.float64 if self.sum == torch.float64 else tl.float32,
            "WIDE": largest >= NARROW,
        }

    def parts(self, width: int) -> Tensor:
        """Room for the pieces of hubs, two a chunk."""
        return self.v.new_empty((2 * self.chunks, width), dtype=self.sum)

    def programs(self, blocks: int) -> tuple[int]:
        return (blocks * (self.rows + 2 * self.chunks),)

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.rows, self.edges, 2 * self.chunks

    def add_parts(
        self, parts: Tensor, out: Tensor, width: int, rest: Tensor, rest_width: int, steps=None, apart=None
    ):
        """The linear way to merge hubs; `steps` from row to row of `out` and `rest`, if not their widths.

        Where copies lie apart, `apart` says how far in `out` and in `rest`, and the widths of one copy.
        """
        if not self.chunks or not width + rest_width:
            return
        steps, apart = steps or (width, rest_width), apart or (0, 0, width, rest_width)
        columns = min(128, triton.next_power_of_2(width + rest_width))
        grid = (self.chunks, triton.cdiv(width + rest_width, columns))
        add_parts[grid](
            self.index[0], self.rows, self.edges, parts, out, rest, *apart[:2],
            WIDTH=width, REST=rest_width, STEP=steps[0], REST_STEP=steps[1], EACH=apart[2],
            REST_EACH=max(1, apart[3]), SPLIT=self.split, TOGETHER=16, COLUMNS=columns, num_warps=4,
        )  # fmt: skip


def on(device: torch.device):
    """Triton launches on the current device."""
    elsewhere = device.type == "cuda" and device.index not in (None, torch.cuda.current_device())
    return torch.cuda.device(device) if elsewhere else nullcontext()


def _dropping(dropout: float, seed: Tensor | None, heads: int, implied: bool):
    """(seeds, heads a seed), and what the kernels are compiled with."""
    options = {"THRESHOLD": threshold(dropout), "SCALE": kept_scale(dropout), "IMPLIED": implied}
    return seed, heads // seed.shape[0] if dropout else 1, options


def forward(
    kind, q, k, v, a, rowptr, col, edge, bias, weight, key, value, slope, degree, dropout, seed, implied,
    outputs,
):  # fmt: skip
    """Fill `outputs`: (out, m, z, O⁺, P⁺); for plain GAT there is no m, and L = m + log z in z's place."""
    out, m, z, plus, mass = outputs
    if not out.numel():
        for t in outputs:
            t.zero_()
        return
    (M, H, D), C = v.shape, q.shape[2]
    q, k, v = (t.contiguous() for t in (q, k, v))
    seeds, each, dropping = _dropping(dropout, seed, H, implied)
    with on(v.device):
        launch = Launch(v, rowptr, col, edge, out, q, k, key, value)
        if _plain(kind, bias, weight, key, value):
            plain_forward(launch, q, k, v, None, (seeds, each, dropping), slope, (out, z, plus, mass), (H, D))
            return
        shape = shape_of(H, C, D, v.element_size(), 8 if H * max(C, D) <= 128 else 4)
        parts = launch.parts(H * D + 2 * H)
        operands = (q, k, v, a, bias, weight, key, value)
        arguments, options = _general(kind, operands, slope, degree, seeds, shape, launch, dropping)
        general.forward[launch.programs(shape.blocks)](
            *launch.index, *arguments, out, m, z, parts, *launch.counts, M, each, **options
        )
        if launch.chunks:
            general.merge[(launch.chunks, shape.blocks)](
                launch.index[0], launch.rows, launch.edges, parts, out, m, z,
                H=H, D=D, HEADS=shape.heads, FEATURES=shape.features, SPLIT=launch.split,
                TOGETHER=shape.tile, num_warps=shape.warps,
            )  # fmt: skip


def backward(
    kind, gradient, q, k, v, a, rowptr, col, edge, by_speaker, bias, weight, key, value, slope, degree,
    dropout, seed, implied, outputs, needs,
):  # fmt: skip
    """Gradients of (q, k, v, a, bias, weight, key, value), those not needed empty."""
    operands = (q, k, v, a, bias, weight, key, value)
    if not (col.shape[0] and v.numel()):
        return tuple(grad.zero_() for grad in gradient_outputs(operands, needs, v))
    q, k, v, gradient = (t.contiguous() for t in (q, k, v, gradient))
    dropping = _dropping(dropout, seed, v.shape[1], implied)
    with on(v.device):
        if _plain(kind, bias, weight, key, value):
            structure = rowptr, col, edge
            return _plain_backward(
                gradient, q, k, v, structure, by_speaker, slope, dropping, outputs, needs, operands
            )
        return _general_backward(
            kind, gradient, operands, (rowptr, col, edge), by_speaker, slope, degree, dropping, outputs, needs
        )


def plain_forward(launch, q, k, v, bias, dropping, slope, outputs, sizes, copies: int = 0) -> None:
    """GAT over rows of q, k and v that may be apart: the way from node to node is their first stride.

    Of copies, (copies, nodes, …) each, the way from copy to copy is.
    """
    (each, D), (seeds, heads_a_seed, options) = sizes, dropping
    out, lse, plus, mass = outputs
    H = each * max(1, copies)
    shape = shape_of(H, 1, D, v.element_size(), *(COPIES if copies else ()))
    parts = launch.parts(2 * H * D + 3 * H)
    common = {
        "H": H, "D": D, "EACH": each, "HEADS": shape.heads, "FEATURES": shape.features, "SPLIT": launch.split,
        "SAVE": plus.numel() > 0, "BIASED": bias is not None, "NUMBER_STEP": _steps(lse, copies)[1],
        "PLUS_STEP": _steps(plus, copies)[1], "num_warps": shape.warps,
    }  # fmt: skip
    (near, q_step), (_, k_step), (far, v_step) = (_steps(t, copies) for t in (q, k, v))
    additive.forward[launch.programs(shape.blocks)](
        *launch.index, q, k, v, bias, seeds, out, lse, plus, mass, parts, *launch.counts,
        launch.rows if copies else len(v), heads_a_seed, near, far,
        BLOCKS=shape.blocks, TILE=shape.tile, LANES=shape.lanes, PAD=_padded(shape, H, D), SLOPE=slope,
        Q_STEP=q_step, K_STEP=k_step, V_STEP=v_step, **options, **launch.common, **common,
    )  # fmt: skip
    if launch.chunks:
        additive.merge[(launch.chunks, shape.blocks)](
            launch.index[0], launch.rows, launch.edges, parts, bias, out, lse, plus, mass,
            **common, TOGETHER=shape.tile,
        )  # fmt: skip


def _steps(t: Tensor, copies: int) -> tuple[int, int]:
    """From copy to copy, if there are any, and from node to node."""
    return (t.stride(0), t.stride(1)) if copies else (0, t.stride(0))


def plain_listeners(
    launch, gradient, q, bias, outputs, dq, slope, sizes, summed: bool = False, copies: int = 0
) -> tuple[Tensor, Tensor]:
    """dq, and the table of what speakers ask of their listeners; if `summed`, parts of the sum of g.

    Of copies all is (copies, nodes, …), q and dq too may only have room between their nodes. `dq` may lie
    where `mass` does.
    """
    (H, D), N, count = sizes, launch.rows, max(1, copies)
    out, lse, plus, mass = outputs
    half = q.dtype != launch.sum
    table = gradient.new_empty((3 + half) * count * N * H, dtype=q.dtype)
    grid, steps, shape = _through(N, H, D, count)
    sums = gradient.new_empty((count * grid[0] if summed else 0, H * D), dtype=launch.sum)
    additive.listeners[grid](
        gradient, out, plus, mass, q, bias, lse, table, _wide(table, launch.sum), dq, sums, N, steps,
        SLOPE=slope, HALF=int(half), Q_STEP=_steps(q, copies)[1], DQ_STEP=_steps(dq, copies)[1],
        NUMBER_STEP=_steps(lse, copies)[1], PLUS_STEP=_steps(plus, copies)[1],
        BIASED=bias is not None, SUMMED=summed, **shape, **launch.common, num_warps=4,
    )  # fmt: skip
    return table, sums


def plain_speakers(
    launch, gradient, table, k, v, dk, dv, dropping, slope, sizes, vectors=None, copies: int = 0
) -> None:
    """dk and dv; with (l, s, dq) for `vectors`, dv has the scores' part in it, for q is l·v and k is s·v."""
    (each, D), (seeds, heads_a_seed, options) = sizes, dropping
    H = each * max(1, copies)
    shape = shape_of(H, 1, D, v.element_size(), *(COPIES if copies else ()))
    parts = launch.parts(H * D + H)
    (near, k_step), (far, v_step), (to_near, dk_step), (to_far, dv_step) = (
        _steps(t, copies) for t in (k, v, dk, dv)
    )
    additive.speakers[launch.programs(shape.blocks)](
        *launch.index, table, _wide(table, launch.sum), gradient, k, v, seeds, *(vectors or (None,) * 3),
        dk, dv, parts, *launch.counts, launch.rows, heads_a_seed, near, far, to_near, to_far,
        H=H, D=D, EACH=each, HEADS=shape.heads, FEATURES=shape.features, BLOCKS=shape.blocks,
        TILE=shape.tile, LANES=shape.lanes, SPLIT=launch.split, PAD=_padded(shape, H, D), SLOPE=slope,
        HALF=int(table.dtype != launch.sum), K_STEP=k_step, V_STEP=v_step, DK_STEP=dk_step, DV_STEP=dv_step,
        VECTORS=vectors is not None, **options, **launch.common, num_warps=shape.warps,
    )  # fmt: skip
    apart = (to_far, to_near, each * D, each) if copies else None
    launch.add_parts(parts, dv, H * D, dk, H, (dv_step, dk_step), apart)


PROGRAMS = 2048  # of a kernel that goes through all nodes once: enough for every processor, few enough to sum


def _through(nodes: int, heads: int, features: int, copies: int = 1):
    """The grid of a kernel that takes each node and head once, its tiles a program, its sizes."""
    width = triton.next_power_of_2(features)
    tile = max(1, 2048 // width)
    together = _evenly(heads, tile)
    tiles = triton.cdiv(nodes, tile // together)
    steps = triton.cdiv(tiles * copies, PROGRAMS)
    sizes = {"H": heads, "D": features, "HEADS": together, "FEATURES": width, "TILE": tile}
    return (triton.cdiv(tiles, steps), triton.cdiv(heads, together), copies), steps, sizes


def _evenly(heads: int, most: int) -> int:
    """How many heads go together, a power of two: such that fewest places stay empty."""
    together = [1 << n for n in range(1 + (triton.next_power_of_2(heads) - 1).bit_length())]
    fit = [n for n in together if n <= most and n >= min(4, most, together[-1])]
    return min(reversed(fit), key=lambda n: triton.cdiv(heads, n) * n)


def _wide(table: Tensor, dtype: torch.dtype) -> Tensor:
    return table if table.dtype == dtype else table.view(dtype)


def _plain_backward(gradient, q, k, v, structure, by_speaker, slope, dropping, outputs, needs, operands):
    sizes = v.shape[1:]
    out, _, lse, plus, mass = outputs
    launch = Launch(v, *structure, out)
    dq = torch.empty_like(q)
    table, _ = plain_listeners(launch, gradient, q, None, (out, lse, plus, mass), dq, slope, sizes)
    # Where nobody else holds them, their memory is there for dv.
    del out, lse, plus, mass
    outputs.clear()
    grads = list(gradient_outputs(operands, (False, *needs[1:]), v))
    if needs[0]:
        grads[0] = dq
    if needs[1] or needs[2]:
        launch = Launch(v, *by_speaker(), gradient)
        dk, dv = (d if d.numel() else torch.empty_like(t) for d, t in zip(grads[1:3], (k, v), strict=True))
        plain_speakers(launch, gradient, table, k, v, dk, dv, dropping, slope, sizes)
    return tuple(grads)


def _general_backward(
    kind, gradient, operands, structure, by_speaker, slope, degree, dropping, outputs, needs
):
    q, k, v, *_, key, value = operands
    (M, H, D), N, C = v.shape, len(q), q.shape[2]
    out, m, z, _, _ = outputs
    grads = gradient_outputs(operands, needs, v)
    dq, dk, dv, da, *per_edge = grads
    compares = kind != "uniform"
    if not compares:
        dq.zero_()
        dk.zero_()
    launch = Launch(v, *structure, out, q, k, key, value)
    table = v.new_empty((N, 4, H), dtype=launch.sum)
    grid, once = _once(launch, N, H, D)
    general.listeners[grid](structure[0], gradient, out, m, z, table, N * H, **once)
    shape = shape_of(H, C, D, v.element_size(), 4)
    seeds, each, dropping = dropping
    need_q, need_k, need_v, need_a = needs[0] and compares, needs[1] and compares, needs[2], needs[3]
    if need_q or any(needs[3:]):
        # Heads that share an edge input but not a program have an entry each, which are added then.
        split = [
            needed and grad.shape[1] == 1 and shape.blocks > 1
            for needed, grad in zip(needs[4:], per_edge, strict=True)
        ]
        targets = [
            grad.new_empty((grad.shape[0], H, *grad.shape[2:])) if apart else grad
            for grad, apart in zip(per_edge, split, strict=True)
        ]
        hows = (_how(t if needed else None, H) for t, needed in zip(targets, needs[4:], strict=True))
        each_a = q.new_empty((N, H, C) if need_a else (0,), dtype=launch.sum)
        parts = launch.parts((need_q + need_a) * H * C)
        arguments, options = _general(kind, operands, slope, degree, seeds, shape, launch, dropping)
        general.row_gradients[launch.programs(shape.blocks)](
            *launch.index, *arguments, gradient, table, dq, each_a, *targets, parts,
            *launch.counts, M, each, DQ=int(need_q), DA=int(need_a),
            **dict(zip(("DBIAS", "DWEIGHT", "DKEY", "DVALUE"), hows, strict=True)), **options,
        )  # fmt: skip
        first = dq if need_q else each_a
        launch.add_parts(parts, first, (need_q or need_a) * H * C, each_a, (need_q and need_a) * H * C)
        if need_a:
            da.copy_(each_a.sum(0))
        for grad, target, apart in zip(per_edge, targets, split, strict=True):
            if apart:
                torch.sum(target, 1, keepdim=True, out=grad)
    if need_k or need_v:
        launch = Launch(v, *by_speaker(), gradient, q, k, key, value)
        parts = launch.parts(need_v * H * D + need_k * H * C)
        arguments, options = _general(kind, operands, slope, degree, seeds, shape, launch, dropping)
        general.column_gradients[launch.programs(shape.blocks)](
            *launch.index, *arguments, gradient, table, dk, dv, parts, *launch.counts, M, each,
            DK=int(need_k), DV=int(need_v), **options,
        )  # fmt: skip
        if need_v:
            launch.add_parts(parts, dv, H * D, dk, need_k * H * C)
        else:
            launch.add_parts(parts, dk, H * C, dk, 0)
    return grads


def _once(launch: Launch, nodes: int, heads: int, features: int):
    """The grid of a kernel that takes each node and head once, and what it is compiled for."""
    width = triton.next_power_of_2(features)
    tile = max(1, 2048 // width)
    sizes = {"H": heads, "D": features, "FEATURES": width, "TILE": tile}
    return (triton.cdiv(nodes * heads, tile),), {**sizes, **launch.common, "num_warps": 4}


def _padded(shape: Shape, heads: int, features: int) -> bool:
    return shape.features != features or shape.blocks * shape.heads != heads


def _how(t: Tensor | None, heads: int) -> int:
    """0: absent; 1: one for all heads; 2: one for each."""
    return 0 if t is None else 2 if t.shape[1] == heads and heads > 1 else 1


def _general(kind, operands, slope, degree, seeds, shape, launch, dropping):
    """The arguments all general kernels share, in their order, and what they are compiled for."""
    operands = [t if t is None else t.contiguous() for t in operands]
    (_, H, D), C = operands[2].shape, operands[0].shape[2]
    hows = (_how(t, H) for t in operands[4:])
    options = {
        "KIND": kind, "H": H, "C": max(C, 1), "D": D, "HEADS": shape.heads, "KEYS": shape.keys,
        "FEATURES": shape.features, "BLOCKS": shape.blocks, "TILE": shape.tile, "KEY_LANES": shape.key_lanes,
        "LANES": shape.lanes, "SPLIT": launch.split, "SLOPE": slope, "DEGREE": degree,
        **dropping, **launch.common, "num_warps": shape.warps,
        **dict(zip(("BIAS", "WEIGHT", "KEY", "VALUE"), hows, strict=True)),
    }  # fmt: skip
    return (*operands, seeds), options


def transpose(rowptr: Tensor, col: Tensor, edge: Tensor, speakers: int) -> tuple[Tensor, Tensor, Tensor]:
    """The same edges by speaker, each speaker's in order of listener."""
    order = torch.argsort(col, stable=True)
    rows = torch.arange(rowptr.shape[0] - 1, dtype=col.dtype, device=col.device)
    row = rows.repeat_interleave(rowptr.diff(), output_size=col.shape[0])
    colptr = rowptr.new_zeros(speakers + 1)
    torch.cumsum(torch.bincount(col, minlength=speakers), 0, out=colptr[1:])
    return colptr, row[order], edge[order]
