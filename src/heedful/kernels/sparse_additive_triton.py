"""GAT without edge extras on the GPU: one gather forward, one backward, nothing kept an edge.

`sparse_additive.py` has the derivation (O⁺, P⁺, and the speakers' two sums). Here the maximum and the
normaliser of a row are kept as one number, L = m + log z, so that p = exp(leaky(q + k) − L).

q, k and v may lie side by side in one table (`gat_packed.py`), so the distance from node to node is given for
each (Q_STEP, K_STEP, V_STEP). A bias b (H·D) is added to what is written; then D = ⟨g, out − b⟩.

Copies of a layer (`gat_stacked.py`) are more heads: EACH of the H are one copy's. Copies lie one behind the
other, q and k `near` numbers apart, v `far`; what is written is (copies, nodes, …).

A tile is (heads, edges, features), in this order because Triton hands threads out to the features first,
then to the first dimension: a warp reads whole rows of `value`, 16 bytes a thread, and sums over edges mostly
inside threads. A head's number is looked up with `where(h < heads, h, 0)` even where no head is too many:
else Triton would read four heads a thread and then add up across sixteen threads.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .rows_triton import head_keys, hub_at, kept, lying, part_of, slots_of


@triton.jit
def asked(
    others, first, slot, high, numbers, rows, h, number_at, row_at, d,
    H: tl.constexpr, D: tl.constexpr, PAD: tl.constexpr, WIDE: tl.constexpr, NUMBERS: tl.constexpr,
    ROW: tl.constexpr,
):  # fmt: skip
    """Where a tile's other ends have their numbers and features, NUMBERS and ROW a node; which exist.

    A node's are where `number_at` and `row_at` say for each head.
    """
    there = (first + slot < high)[None, :]
    if WIDE:
        others = others.to(tl.int64)
    if PAD:
        there = there & (h < H)[:, None]
    number = numbers + others[None, :] * NUMBERS + number_at[:, None]
    place = (others * ROW)[None, :, None] + row_at[:, None, None] + d[None, None, :]
    whole = there[:, :, None]
    if PAD:
        whole = whole & (d < D)[None, None, :]
    return number, there, rows + place, whole


@triton.jit
def dropped(
    edge, at, high, i, j, keys, columns,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, IMPLIED: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """What dropout multiplies a tile's weights by."""
    if IMPLIED:
        counter = i.to(tl.int64) * columns + j
    else:
        counter = tl.load(edge + at, mask=at < high, other=0)
    return kept(keys[:, None], counter[None, :], THRESHOLD).to(ACC) * SCALE


@triton.jit
def weighted(x, p, value, LANES: tl.constexpr):
    """Σ p v over the edges, and the part of it where x > 0; what LANES threads have summed up stays apart.

    One number an edge and head changes threads: p, signed.
    """
    signed = tl.where(x > 0, p, -p)[:, :, None]
    H: tl.constexpr = value.shape[0]
    T: tl.constexpr = value.shape[1] // LANES
    D: tl.constexpr = value.shape[2]
    whole = tl.reshape(tl.abs(signed) * value, (H, T, LANES, D))
    positive = tl.reshape(tl.maximum(signed, 0) * value, (H, T, LANES, D))
    return tl.sum(whole, 1), tl.sum(positive, 1)


@triton.jit(do_not_specialize=["rows", "edges", "pieces", "columns", "each"])
def forward(
    rowptr, col, edge, q, k, v, bias, seeds, out, lse, plus, mass, parts, rows, edges, pieces, columns, each,
    near, far,
    H: tl.constexpr, D: tl.constexpr, EACH: tl.constexpr, HEADS: tl.constexpr, FEATURES: tl.constexpr,
    BLOCKS: tl.constexpr, TILE: tl.constexpr, LANES: tl.constexpr, SPLIT: tl.constexpr, PAD: tl.constexpr,
    ACC: tl.constexpr, WIDE: tl.constexpr, SAVE: tl.constexpr, SLOPE: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, IMPLIED: tl.constexpr, Q_STEP: tl.constexpr, K_STEP: tl.constexpr,
    V_STEP: tl.constexpr, NUMBER_STEP: tl.constexpr, PLUS_STEP: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    program, block = part_of(tl.program_id(0), rows, pieces, BLOCKS, EACH, H)
    row, low, high, mine = slots_of(program, rowptr, rows, edges, pieces, SPLIT, WIDE)
    if mine:
        h = block * HEADS + tl.arange(0, HEADS)
        d, slot = tl.arange(0, FEATURES), tl.arange(0, TILE)
        lane = tl.where(h < H, h, 0)
        keys = lane
        if THRESHOLD > 0:
            keys = head_keys(seeds, lane, each)
        number_at, row_at = lying(lane, near, EACH, H, 1, WIDE), lying(h, far, EACH, H, D, WIDE)
        here = tl.load(q + row * Q_STEP + number_at).to(ACC)[:, None]
        j = tl.load(col + low + slot, mask=low + slot < high, other=0)
        soon = tl.load(col + low + TILE + slot, mask=low + TILE + slot < high, other=0)
        number, there, place, whole = asked(
            j, low, slot, high, k, v, h, number_at, row_at, d, H, D, PAD, WIDE, K_STEP, V_STEP
        )
        score, value = tl.load(number, mask=there, other=0), tl.load(place, mask=whole, other=0)
        # The first tile stands before the loop: most rows have no other, and it needs no rescaling.
        x = here + score.to(ACC)
        score = tl.where(there, tl.where(x > 0, x, x * SLOPE), float("-inf"))
        top = tl.max(score, 1)
        p = tl.exp(score - tl.where(top == float("-inf"), 0.0, top)[:, None])
        total, positive = tl.sum(p, 1), tl.sum(tl.where(x > 0, p, 0.0), 1)
        if THRESHOLD > 0:
            p *= dropped(edge, low + slot, high, row, j, keys, columns, THRESHOLD, SCALE, IMPLIED, ACC)
        sum_, sum_positive = weighted(x, p, value.to(ACC), LANES)
        for t in range(TILE, high - low, TILE):
            # Whom the next tile asks is read before this one's answers are there.
            at = low + t
            j, soon = soon, tl.load(col + at + TILE + slot, mask=at + TILE + slot < high, other=0)
            number, there, place, whole = asked(
                j, at, slot, high, k, v, h, number_at, row_at, d, H, D, PAD, WIDE, K_STEP, V_STEP
            )
            score, value = tl.load(number, mask=there, other=0), tl.load(place, mask=whole, other=0)
            x = here + score.to(ACC)
            score = tl.where(there, tl.where(x > 0, x, x * SLOPE), float("-inf"))
            new = tl.maximum(top, tl.max(score, 1))
            shift = tl.where(new == float("-inf"), 0.0, new)
            less = tl.exp(top - shift)
            p = tl.exp(score - shift[:, None])
            top = new
            total = total * less + tl.sum(p, 1)
            positive = positive * less + tl.sum(tl.where(x > 0, p, 0.0), 1)
            if THRESHOLD > 0:
                p *= dropped(edge, at + slot, high, row, j, keys, columns, THRESHOLD, SCALE, IMPLIED, ACC)
            more, more_positive = weighted(x, p, value.to(ACC), LANES)
            sum_ = sum_ * less[:, None, None] + more
            sum_positive = sum_positive * less[:, None, None] + more_positive
        sum_, sum_positive = tl.sum(sum_, 1), tl.sum(sum_positive, 1)
        there = h < H
        place = (h * D)[:, None] + d[None, :]
        inside = there[:, None] & (d < D)[None, :]
        if program < pieces:
            F: tl.constexpr = H * D
            part = parts + program.to(tl.int64) * (2 * F + 3 * H)
            tl.store(part + place, sum_, mask=inside)
            tl.store(part + 2 * F + h, top, mask=there)
            tl.store(part + 2 * F + H + h, total, mask=there)
            if SAVE:
                tl.store(part + F + place, sum_positive, mask=inside)
                tl.store(part + 2 * F + 2 * H + h, positive, mask=there)
        else:
            finish(
                bias, out, lse, plus, mass, row, rows, h, d, place, there, inside,
                sum_, sum_positive, top, total, positive,
                H, D, EACH, NUMBER_STEP, PLUS_STEP, WIDE, SAVE, BIASED,
            )  # fmt: skip


@triton.jit
def finish(
    bias, out, lse, plus, mass, row, rows, h, d, place, there, inside,
    sum_, sum_positive, top, total, positive,
    H: tl.constexpr, D: tl.constexpr, EACH: tl.constexpr, NUMBER_STEP: tl.constexpr, PLUS_STEP: tl.constexpr,
    WIDE: tl.constexpr, SAVE: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """Divide by the normaliser and write; a row that heard nobody gets 0, and L = ∞ makes its shares 0."""
    nobody = total == 0
    share = 1 / tl.where(nobody, float("inf"), total)
    mean = sum_ * share[:, None]
    if BIASED:
        mean += tl.load(bias + place, mask=inside, other=0).to(mean.dtype)
    number = row * NUMBER_STEP + lying(h, rows * NUMBER_STEP, EACH, H, 1, WIDE)
    least = tl.where(nobody, float("inf"), top + tl.log(tl.where(nobody, 1.0, total)))
    tl.store(lse + number, least, mask=there)
    at = row * (EACH * D) + lying(h, rows * (EACH * D), EACH, H, D, WIDE)[:, None] + d[None, :]
    tl.store(out + at, mean.to(out.dtype.element_ty), mask=inside)
    if SAVE:
        at = row * PLUS_STEP + lying(h, rows * PLUS_STEP, EACH, H, D, WIDE)[:, None] + d[None, :]
        tl.store(plus + at, (sum_positive * share[:, None]).to(plus.dtype.element_ty), mask=inside)
        tl.store(mass + number, positive * share, mask=there)


@triton.jit(do_not_specialize=["rows", "edges"])
def merge(
    rowptr, rows, edges, parts, bias, out, lse, plus, mass,
    H: tl.constexpr, D: tl.constexpr, EACH: tl.constexpr, HEADS: tl.constexpr, FEATURES: tl.constexpr,
    SPLIT: tl.constexpr, TOGETHER: tl.constexpr, NUMBER_STEP: tl.constexpr, PLUS_STEP: tl.constexpr,
    SAVE: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    """A hub's output from its pieces, each of which has a maximum of its own."""
    row, begin, last, within, mine = hub_at(tl.program_id(0), rowptr, rows, edges, SPLIT)
    if mine:
        F: tl.constexpr = H * D
        h, d = tl.program_id(1) * HEADS + tl.arange(0, HEADS), tl.arange(0, FEATURES)
        there = h < H
        place = (h * D)[:, None] + d[None, :]
        inside = there[:, None] & (d < D)[None, :]
        top = tl.full((HEADS,), float("-inf"), parts.dtype.element_ty)
        total = tl.zeros((HEADS,), parts.dtype.element_ty)
        positive = tl.zeros((HEADS,), parts.dtype.element_ty)
        sum_ = tl.zeros((HEADS, FEATURES), parts.dtype.element_ty)
        sum_positive = tl.zeros((HEADS, FEATURES), parts.dtype.element_ty)
        for chunk in range(begin, last + 1, TOGETHER):
            piece = chunk + tl.arange(0, TOGETHER)
            part = 2 * piece + ((piece == begin) & within).to(tl.int32)
            start = part.to(tl.int64) * (2 * F + 3 * H)
            ok = there[:, None] & (piece <= last)[None, :]
            small = parts + start[None, :] + 2 * F + h[:, None]
            tops = tl.load(small, mask=ok, other=float("-inf"))
            new = tl.maximum(top, tl.max(tops, 1))
            shift = tl.where(new == float("-inf"), 0.0, new)
            less, factor = tl.exp(top - shift), tl.exp(tops - shift[:, None])
            top = new
            total = total * less + tl.sum(factor * tl.load(small + H, mask=ok, other=0), 1)
            if SAVE:
                positive = positive * less + tl.sum(factor * tl.load(small + 2 * H, mask=ok, other=0), 1)
            wide = parts + start[None, :, None] + place[:, None, :]
            ok = inside[:, None, :] & (piece <= last)[None, :, None]
            factor = factor[:, :, None]
            sum_ = sum_ * less[:, None] + tl.sum(factor * tl.load(wide, mask=ok, other=0), 1)
            if SAVE:
                more = tl.sum(factor * tl.load(wide + F, mask=ok, other=0), 1)
                sum_positive = sum_positive * less[:, None] + more
        finish(
            bias, out, lse, plus, mass, row, rows, h, d, place, there, inside,
            sum_, sum_positive, top, total, positive,
            H, D, EACH, NUMBER_STEP, PLUS_STEP, True, SAVE, BIASED,
        )  # fmt: skip


@triton.jit(do_not_specialize=["nodes", "steps"])
def listeners(
    gradient, out, plus, mass, q, bias, lse, table, normalisers, dq, sums, nodes, steps,
    H: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, FEATURES: tl.constexpr, TILE: tl.constexpr,
    ACC: tl.constexpr, WIDE: tl.constexpr, SLOPE: tl.constexpr, HALF: tl.constexpr, Q_STEP: tl.constexpr,
    DQ_STEP: tl.constexpr, NUMBER_STEP: tl.constexpr, PLUS_STEP: tl.constexpr, BIASED: tl.constexpr,
    SUMMED: tl.constexpr,
):  # fmt: skip
    """dq, and in `table` what the speakers' pass gathers of a listener, side by side.

    (q, D, L); of q in half precision (L, q, D), where L takes two places and is read and written in
    `normalisers`, the same memory as float32. Each program writes what its nodes add to the gradient of a
    bias, into `sums`. Copies are the grid's third dimension, H the heads of one. `dq` may lie where `mass`
    does.
    """
    d = tl.arange(0, FEATURES)
    total = tl.zeros((TILE, FEATURES), ACC)
    for step in range(steps):
        # Rows are nodes and, within each, heads.
        n = (tl.program_id(0) * steps + step) * TILE + tl.arange(0, TILE)
        if WIDE:
            n = n.to(tl.int64)
        i, h = n // HEADS, n % HEADS + tl.program_id(1) * HEADS
        there = i < nodes
        before = tl.program_id(2) * nodes
        if WIDE:
            before = tl.program_id(2).to(tl.int64) * nodes
        i, n = i + before, n + before * H
        if HEADS != H:
            there = there & (h < H)
            n = i * H + h
        place, inside = n[:, None] * D + d[None, :], there[:, None] & (d < D)[None, :]
        g = tl.load(gradient + place, mask=inside, other=0).to(ACC)
        said = tl.load(out + place, mask=inside, other=0).to(ACC)
        if BIASED:
            at = bias + tl.program_id(2) * (H * D) + (h * D)[:, None] + d[None, :]
            said -= tl.load(at, mask=inside, other=0).to(ACC)
        if SUMMED:
            total += g
        dot = tl.sum(g * said, 1)
        place = (i * PLUS_STEP + h * D)[:, None] + d[None, :]
        dot_positive = tl.sum(g * tl.load(plus + place, mask=inside, other=0).to(ACC), 1)
        n = i * NUMBER_STEP + h
        positive = tl.load(mass + n, mask=there, other=0)
        change = (1 - SLOPE) * (dot_positive - dot * positive)
        tl.debug_barrier()  # several threads may have asked for the same number
        tl.store(dq + i * DQ_STEP + h, change.to(dq.dtype.element_ty), mask=there)
        at = table + i * ((3 + HALF) * H) + 2 * HALF * H + h
        tl.store(at, tl.load(q + i * Q_STEP + h, mask=there, other=0).to(table.dtype.element_ty), mask=there)
        tl.store(at + H, dot.to(table.dtype.element_ty), mask=there)
        at = normalisers + i * ((3 - HALF) * H) + 2 * (1 - HALF) * H + h
        tl.store(at, tl.load(lse + n, mask=there, other=0), mask=there)
    if SUMMED:
        h = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
        part = tl.program_id(2) * tl.num_programs(0) + tl.program_id(0)
        at = part * (H * D) + (h * D)[:, None] + d[None, :]
        total = tl.sum(tl.reshape(total, (TILE // HEADS, HEADS, FEATURES)), 0)
        tl.store(sums + at, total, mask=(h < H)[:, None] & (d < D)[None, :])


@triton.jit(do_not_specialize=["rows", "edges", "pieces", "columns", "each"])
def speakers(
    colptr, row, edge, table, normalisers, gradient, k, v, seeds, listener, speaker, dq, dk, dv, parts,
    rows, edges, pieces, columns, each, near, far, to_near, to_far,
    H: tl.constexpr, D: tl.constexpr, EACH: tl.constexpr, HEADS: tl.constexpr, FEATURES: tl.constexpr,
    BLOCKS: tl.constexpr, TILE: tl.constexpr, SPLIT: tl.constexpr, PAD: tl.constexpr, ACC: tl.constexpr,
    WIDE: tl.constexpr, SLOPE: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
    IMPLIED: tl.constexpr, LANES: tl.constexpr, HALF: tl.constexpr, K_STEP: tl.constexpr,
    V_STEP: tl.constexpr, DK_STEP: tl.constexpr, DV_STEP: tl.constexpr, VECTORS: tl.constexpr,
):  # fmt: skip
    """dv_j = Σ_i p g_i, and dk_j from the same sum, its positive part and the two of p D_i.

    With VECTORS l and s (H·D), q being l·v and k being s·v, so that dv_j has dq_j l + dk_j s besides.
    """
    program, block = part_of(tl.program_id(0), rows, pieces, BLOCKS, EACH, H)
    j, low, high, mine = slots_of(program, colptr, rows, edges, pieces, SPLIT, WIDE)
    if mine:
        h = block * HEADS + tl.arange(0, HEADS)
        d, slot = tl.arange(0, FEATURES), tl.arange(0, TILE)
        lane = tl.where(h < H, h, 0)
        keys = lane
        if THRESHOLD > 0:
            keys = head_keys(seeds, lane, each)
        here = tl.load(k + j * K_STEP + lying(lane, near, EACH, H, 1, WIDE)).to(ACC)
        number_at = lying(lane, rows * ((3 + HALF) * EACH), EACH, H, 1, WIDE)
        whole_at = lying(lane, rows * ((3 - HALF) * EACH), EACH, H, 1, WIDE)
        row_at = lying(h, rows * (EACH * D), EACH, H, D, WIDE)
        b = tl.zeros((HEADS, TILE), ACC)
        b_positive = tl.zeros((HEADS, TILE), ACC)
        a = tl.zeros((HEADS, LANES, FEATURES), ACC)
        a_positive = tl.zeros((HEADS, LANES, FEATURES), ACC)
        soon = tl.load(row + low + slot, mask=low + slot < high, other=0)
        for t in range(0, high - low, TILE):
            # Whom the next tile asks is read before this one's answers are there.
            at = low + t
            i, soon = soon, tl.load(row + at + TILE + slot, mask=at + TILE + slot < high, other=0)
            number, there, place, whole = asked(
                i, at, slot, high, table, gradient, h, number_at, row_at, d,
                H, D, PAD, WIDE, (3 + HALF) * EACH, EACH * D,
            )  # fmt: skip
            x = tl.load(number + 2 * HALF * EACH, mask=there, other=0).to(ACC)
            dot = tl.load(number + 2 * HALF * EACH + EACH, mask=there, other=0).to(ACC)
            g = tl.load(place, mask=whole, other=0)
            if WIDE:
                i = i.to(tl.int64)
            number = normalisers + i[None, :] * ((3 - HALF) * EACH) + whole_at[:, None]
            lse = tl.load(number + 2 * (1 - HALF) * EACH, mask=there, other=float("inf"))
            x += here[:, None]
            p = tl.exp(tl.where(x > 0, x, x * SLOPE) - lse)
            dot *= p
            b += dot
            b_positive += tl.where(x > 0, dot, 0.0)
            if THRESHOLD > 0:
                p *= dropped(edge, at + slot, high, i, j, keys, columns, THRESHOLD, SCALE, IMPLIED, ACC)
            more, more_positive = weighted(x, p, g.to(ACC), LANES)
            a += more
            a_positive += more_positive
        a, a_positive = tl.sum(a, 1), tl.sum(a_positive, 1)
        there = h < H
        place = (h * D)[:, None] + d[None, :]
        inside = there[:, None] & (d < D)[None, :]
        own = lying(h, far, EACH, H, D, WIDE)[:, None] + d[None, :]
        value = tl.load(v + j * V_STEP + own, mask=inside, other=0).to(ACC)
        flat = tl.sum(a * value, 1) - tl.sum(b, 1)
        steep = tl.sum(a_positive * value, 1) - tl.sum(b_positive, 1)
        change = SLOPE * flat + (1 - SLOPE) * steep
        number_to = j * DK_STEP + lying(h, to_near, EACH, H, 1, WIDE)
        if VECTORS:
            a += change[:, None] * tl.load(speaker + place, mask=inside, other=0).to(ACC)
            if low == tl.load(colptr + j):  # of the pieces of a hub the first
                asks = tl.load(dq + number_to, mask=there, other=0).to(ACC)
                a += asks[:, None] * tl.load(listener + place, mask=inside, other=0).to(ACC)
        if program < pieces:
            part = parts + program.to(tl.int64) * (H * D + H)
            tl.store(part + place, a, mask=inside)
            tl.store(part + H * D + h, change, mask=there)
        else:
            row_to = lying(h, to_far, EACH, H, D, WIDE)[:, None] + d[None, :]
            tl.store(dv + j * DV_STEP + row_to, a.to(dv.dtype.element_ty), mask=inside)
            tl.store(dk + number_to, change.to(dk.dtype.element_ty), mask=there)
