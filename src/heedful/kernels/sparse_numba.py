"""The CPU loops of sparse attention, compiled by Numba when `sparse.py` first needs them.

Everything is one serial pass over a run of rows (or columns), so one row is always summed by one thread
in one order.

Why explicit vectors (`Lanes`): a graph's inner loops are short (8 heads, 8 features). LLVM's loop
vectoriser wants long ones, and its straight-line vectoriser gives up because two NumPy arguments might
overlap; measured, plain loops took 15-60 ms where these take 3. `Lanes` is an LLVM vector with the
arithmetic written on it, so what the source says is what the machine does. Numba's cache only notices
changes to the file a kernel stands in, hence all in one file.
"""

from __future__ import annotations

import operator
from functools import cache

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

# No nnan or ninf: −inf is how an edge is silenced and NaN must come out where NaN went in.
# No arcp in the general path: 1/z may overflow where e/z does not.
FAST = {"contract", "reassoc", "nsz"}
FLAGS = ("contract", "nsz")

ADDITIVE, ADDITIVE_V2, DOT, POWER, UNIFORM = range(5)
KINDS = {"additive": ADDITIVE, "additive_v2": ADDITIVE_V2, "dot": DOT, "power": POWER, "uniform": UNIFORM}

AHEAD = 8  # edges between asking for a row and using it
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_A, MIX_B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Lanes(types.Type):
    """`count` numbers of one dtype side by side in vector registers."""

    def __init__(self, dtype, count):
        self.dtype, self.count = dtype, count
        super().__init__(name=f"Lanes({dtype}, {count})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes):
        super().__init__(manager, lanes, ir.VectorType(manager[lanes.dtype].get_value_type(), lanes.count))


def _count(like):
    """How many lanes: a literal integer says it, another vector shows it (and so survives a call)."""
    return like.count if isinstance(like, Lanes) else like.literal_value


def _vector(context, lanes):
    return context.get_value_type(lanes)


def _splat(builder, scalar, vector):
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def _constant(vector, number):
    return ir.Constant(vector, [number] * vector.count)


def _call(builder, name, vector, *arguments):
    """An LLVM intrinsic on whole vectors, e.g. llvm.floor.v8f32."""
    suffix = f"v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}"
    kind = ir.FunctionType(vector, [vector] * len(arguments))
    function = builder.module.globals.get(f"llvm.{name}.{suffix}") or ir.Function(
        builder.module, kind, f"llvm.{name}.{suffix}"
    )
    return builder.call(function, arguments)


def _pointer(context, builder, array_type, array, at, vector):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), vector.as_pointer())


@intrinsic(prefer_literal=True)
def load(typing, array, at, like):
    """Neighbours of a contiguous array from flat position `at`, as many as `like` has lanes."""
    lanes = Lanes(array.dtype, _count(like))

    def generate(context, builder, sig, arguments):
        at = context.cast(builder, arguments[1], sig.args[1], types.intp)
        pointer = _pointer(context, builder, sig.args[0], arguments[0], at, _vector(context, lanes))
        return builder.load(pointer, align=array.dtype.bitwidth // 8)

    return lanes(array, at, like), generate


@intrinsic(prefer_literal=True)
def prefetch(typing, array, at, like):
    """Ask for the cache lines that `load` will want: the next edges' rows lie anywhere, and the processor
    only sees a few edges ahead by itself. Measured: 1.2 times as fast forward, 1.5 times backward.
    """
    lines = range(0, _count(like) * array.dtype.bitwidth // 8, 64)

    def generate(context, builder, sig, arguments):
        at = context.cast(builder, arguments[1], sig.args[1], types.intp)
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        data = context.make_array(sig.args[0])(context, builder, arguments[0]).data
        data = builder.bitcast(builder.gep(data, [at]), byte)
        function = builder.module.globals.get("llvm.prefetch.p0i8") or ir.Function(
            builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), "llvm.prefetch.p0i8"
        )
        for line in lines:
            line = builder.gep(data, [ir.Constant(ir.IntType(64), line)])
            builder.call(function, [line, ir.Constant(word, 0), ir.Constant(word, 3), ir.Constant(word, 1)])
        return context.get_dummy_value()

    return types.none(array, at, like), generate


@intrinsic
def store(typing, array, at, lanes):
    def generate(context, builder, sig, arguments):
        at = context.cast(builder, arguments[1], sig.args[1], types.intp)
        pointer = _pointer(context, builder, sig.args[0], arguments[0], at, _vector(context, sig.args[2]))
        builder.store(arguments[2], pointer, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.none(array, at, lanes), generate


@intrinsic(prefer_literal=True)
def splat(typing, scalar, like):
    lanes = Lanes(types.unliteral(scalar), _count(like))

    def generate(context, builder, sig, arguments):
        return _splat(builder, arguments[0], _vector(context, lanes))

    return lanes(scalar, like), generate


def _shuffled(builder, x, y, order):
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))


def _nothing(vector):
    return ir.Constant(vector, ir.Undefined)


@intrinsic(prefer_literal=True)
def repeat(typing, lanes, like):
    """(w₀, w₁, …) to (w₀, w₀, …, w₁, w₁, …): one weight per head spread over that head's features."""
    times = _count(like) // lanes.count

    def generate(context, builder, sig, arguments):
        order = [i // times for i in range(lanes.count * times)]
        return _shuffled(builder, arguments[0], _nothing(arguments[0].type), order)

    return Lanes(lanes.dtype, lanes.count * times)(lanes, like), generate


@intrinsic(prefer_literal=True)
def tile(typing, lanes, like):
    """(x₀, x₁, …) to (x₀, x₁, …, x₀, x₁, …): an edge's features, shared by the heads."""

    def generate(context, builder, sig, arguments):
        order = [i % lanes.count for i in range(_count(like))]
        return _shuffled(builder, arguments[0], _nothing(arguments[0].type), order)

    return Lanes(lanes.dtype, _count(like))(lanes, like), generate


def _tree(builder, value, groups, width, place):
    """Sum `width` members in each of `groups`, by halves; place(group, member, width) is where a member
    lies.
    """
    while width > 1:
        low, high = (width + 1) // 2, width // 2
        zeros, spare = _constant(value.type, 0.0), value.type.count
        order = [place(group, member, width) for group, member in _grid(groups, low, place)]
        other = [
            place(group, member + low, width) if member < high else spare
            for group, member in _grid(groups, low, place)
        ]
        value = builder.fadd(_shuffled(builder, value, zeros, order), _shuffled(builder, value, zeros, other))
        width = low
    return value


def _by_group(group, member, width):
    return group * width + member


def _grid(groups, members, place):
    """All (group, member), in the order in which `place` lays them out."""
    if place is _by_group:
        return [(group, member) for group in range(groups) for member in range(members)]
    return [(group, member) for member in range(members) for group in range(groups)]


@intrinsic(prefer_literal=True)
def sums(typing, lanes, like):
    """Sum each head's features: the opposite of `repeat`. A tree of halves, so the order is fixed."""
    heads = _count(like)

    def generate(context, builder, sig, arguments):
        return _tree(builder, arguments[0], heads, lanes.count // heads, _by_group)

    return Lanes(lanes.dtype, heads)(lanes, like), generate


@intrinsic(prefer_literal=True)
def over_heads(typing, lanes, like):
    """Sum each feature over the heads: the opposite of `tile`."""
    features = _count(like)

    def generate(context, builder, sig, arguments):
        def by_member(group, member, width):
            return member * features + group

        return _tree(builder, arguments[0], features, lanes.count // features, by_member)

    return Lanes(lanes.dtype, features)(lanes, like), generate


@intrinsic
def first(typing, lanes):
    """The number in a vector of one."""

    def generate(context, builder, sig, arguments):
        return builder.extract_element(arguments[0], ir.Constant(ir.IntType(32), 0))

    return lanes.dtype(lanes), generate


@intrinsic
def fma(typing, x, y, z):
    """x·y + z"""

    def generate(context, builder, sig, arguments):
        return _call(builder, "fmuladd", _vector(context, sig.args[0]), *arguments)

    return x(x, y, z), generate


def _larger(context, builder, sig, arguments):
    x, y = arguments
    return builder.select(builder.fcmp_ordered(">", y, x), y, x)


@intrinsic
def larger(typing, x, y):
    """The maximum, x where either is NaN: a NaN score must not become the maximum, it shows in the sum
    anyway.
    """
    return x(x, y), _larger


@intrinsic
def where_nonzero(typing, x, yes, no):
    def generate(context, builder, sig, arguments):
        x, yes, no = arguments
        return builder.select(builder.fcmp_unordered("!=", x, _constant(x.type, 0.0)), yes, no)

    return yes(x, yes, no), generate


@intrinsic
def finite(typing, x):
    """x, with 0 for −inf."""

    def generate(context, builder, sig, arguments):
        (x,) = arguments
        silent = builder.fcmp_ordered("==", x, _constant(x.type, float("-inf")))
        return builder.select(silent, _constant(x.type, 0.0), x)

    return x(x), generate


@intrinsic
def where_positive(typing, x, yes, no):
    def generate(context, builder, sig, arguments):
        x, yes, no = arguments
        return builder.select(builder.fcmp_ordered(">", x, _constant(x.type, 0.0)), yes, no)

    return yes(x, yes, no), generate


@intrinsic
def reciprocal(typing, x):
    """1/x, and 0 for 0: a row without neighbours has no sum to divide."""

    def generate(context, builder, sig, arguments):
        (x,), kind = arguments, arguments[0].type
        inverse = builder.fdiv(_constant(kind, 1.0), x)
        return builder.select(builder.fcmp_ordered("==", x, _constant(kind, 0.0)), x, inverse)

    return x(x), generate


def _exponential32(builder, x):
    """exp by 2ⁿ·exp(r), |r| ≤ ln 2 / 2, Cephes' polynomial: 1 ulp or so; 0 below −87.3, NaN for NaN.

    Arguments here are logit − maximum ≤ 0; above 88 it gives inf a little early, as an overflow may.
    """
    kind = x.type

    def number(value):
        return _constant(kind, value)

    def times_plus(a, b, c):
        return _call(builder, "fmuladd", kind, a, b, c)

    lowest = number(-87.3365478515625)
    c = builder.select(builder.fcmp_ordered(">", x, lowest), x, lowest)
    c = builder.select(builder.fcmp_ordered("<", c, number(88.75)), c, number(88.75))
    n = _call(builder, "floor", kind, times_plus(c, number(1.44269502162933349609375), number(0.5)))
    r = times_plus(n, number(-0.693359375), c)
    r = times_plus(n, number(2.1219444170128554105758666992e-4), r)
    p = number(float(np.float32(1.9875691500e-4)))
    for coefficient in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = times_plus(p, r, number(float(np.float32(coefficient))))
    p = builder.fadd(times_plus(p, builder.fmul(r, r), r), number(1.0))
    whole = ir.VectorType(ir.IntType(32), kind.count)
    exponent = builder.add(builder.fptosi(n, whole), _constant(whole, 127))
    power = builder.bitcast(builder.shl(exponent, _constant(whole, 23)), kind)
    result = builder.fmul(p, power)
    result = builder.select(builder.fcmp_ordered("<", x, lowest), number(0.0), result)
    return builder.select(builder.fcmp_unordered("uno", x, x), x, result)


@intrinsic
def exponential(typing, x):
    def generate(context, builder, sig, arguments):
        if sig.args[0].dtype == types.float32:
            return _exponential32(builder, arguments[0])
        return _call(builder, "exp", _vector(context, sig.args[0]), *arguments)

    return x(x), generate


def _operator(symbol, instruction):
    @infer_global(symbol)
    class _Typed(AbstractTemplate):
        def generic(self, arguments, keywords):
            if len(arguments) == 2 and isinstance(arguments[0], Lanes) and arguments[0] == arguments[1]:
                return signature(arguments[0], *arguments)

    @lower_builtin(symbol, Lanes, Lanes)
    def _lower(context, builder, sig, arguments):
        return getattr(builder, instruction)(*arguments, flags=FLAGS)


for _symbol, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _operator(_symbol, _instruction)


@intrinsic(prefer_literal=True)
def kept(typing, keys, at, counter, threshold, scale, like):
    """`scale` where head's edge is kept, 0 where it is dropped; `mixed` on whole vectors."""
    lanes = Lanes(scale, _count(like))

    def generate(context, builder, sig, arguments):
        keys, at, counter, threshold, scale, _ = arguments
        at = context.cast(builder, at, sig.args[1], types.intp)
        vector = _vector(context, lanes)
        words = ir.VectorType(ir.IntType(64), vector.count)

        def number(value):
            return _constant(words, int(value))

        step = builder.mul(counter, ir.Constant(ir.IntType(64), int(GOLDEN)))
        x = builder.load(_pointer(context, builder, sig.args[0], keys, at, words), align=8)
        x = builder.add(x, _splat(builder, step, words))
        x = builder.mul(builder.xor(x, builder.lshr(x, number(30))), number(MIX_A))
        x = builder.mul(builder.xor(x, builder.lshr(x, number(27))), number(MIX_B))
        x = builder.lshr(builder.xor(x, builder.lshr(x, number(31))), number(11))
        keep = builder.icmp_unsigned(">=", x, _splat(builder, threshold, words))
        return builder.select(keep, _splat(builder, scale, vector), _constant(vector, 0.0))

    return lanes(keys, at, counter, threshold, scale, like), generate


@njit(nogil=True, cache=True)
def mixed(x):
    """splitmix64's finaliser."""
    x = (x ^ (x >> np.uint64(30))) * MIX_A
    x = (x ^ (x >> np.uint64(27))) * MIX_B
    return x ^ (x >> np.uint64(31))


@njit(nogil=True, cache=True)
def head_keys(seeds, heads):
    """One hash key a head. Several seeds (vmapped copies) split the heads evenly and each counts its own
    from 0.
    """
    keys = np.zeros(max(heads, 1), np.uint64)
    if seeds.shape[0] == 0:
        return keys
    each = heads // seeds.shape[0]
    for h in range(heads):
        keys[h] = mixed(mixed(np.uint64(seeds[h // each])) + GOLDEN * np.uint64(h % each + 1))
    return keys


@njit(nogil=True, cache=True)
def keep_bits(seeds, heads, counters, threshold, out):
    """out[c, h]: is edge `counters[c]` kept in head h? (For tests: the kernels ask edge by edge.)"""
    keys = head_keys(seeds, heads)
    for c in range(counters.shape[0]):
        for h in range(heads):
            bits = mixed(keys[h] + np.uint64(counters[c]) * GOLDEN) >> np.uint64(11)
            out[c, h] = bits >= threshold


@njit(nogil=True, cache=True)
def counter_of(implied, columns, i, j, edge):
    """What dropout counts by: the caller's edge, or the pair (i, j) where the edges only spell out a
    pattern.
    """
    return np.uint64(i) * np.uint64(columns) + np.uint64(j) if implied else np.uint64(edge)


@cache
def additive_kernels(heads: int, features: int):
    """GAT without edge extras: exp(leaky(q_i + k_j)) with heads and features known, everything in registers.

    leaky is increasing, so a first sweep over k alone finds the row's maximum, leaky(q_i + max_j k_j).
    Per head dS_ij = p_ij (g_i·v_j − D_i) sums to zero over j and leaky' is 1 or `slope`, so with
    O⁺_i = Σ_{q+k>0} p v and P⁺_i = Σ_{q+k>0} p:   dq_i = (1−slope) (g_i·O⁺_i − D_i P⁺_i), no gather.
    For the speakers the same split, summed before the dot product instead of after: with
    A_j = Σ_i p g_i (which is dv_j), A⁺_j its positive part, B_j = Σ_i p D_i and B⁺_j likewise:
        dk_j = slope (A_j·v_j − B_j) + (1−slope) (A⁺_j·v_j − B⁺_j),
    which trades 64 more multiply-adds an edge for 8 horizontal sums: three times as fast.
    Dropout only changes the p beside g and v, not the one beside D, so both hold with it.
    """
    H, F, T = heads, heads * features, 4 * heads

    @njit(nogil=True, cache=True)
    def forward(
        start, stop, rowptr, col, edge, q, k, v, seeds, threshold, scale, implied, save, slope,
        out, m, z, plus, plus_mass,
    ):  # fmt: skip
        number = q.dtype.type
        keys, drop, columns = head_keys(seeds, H), threshold > np.uint64(0), k.shape[0]
        nothing, none = splat(number(0), H), splat(number(0), F)
        slopes, scale = splat(number(slope), H), number(scale)
        for i in range(start, stop):
            low, high = rowptr[i], rowptr[i + 1]
            here = load(q, i * H, H)
            top = splat(number(-np.inf), H)
            for e in range(low, high):
                top = larger(top, load(k, np.int64(col[e]) * H, H))
            x = here + top
            top = where_positive(x, x, x * slopes)
            if low == high:
                top = nothing
            total, positive, sum_, sum_positive = nothing, nothing, none, none
            for e in range(low, high):
                j = np.int64(col[e])
                prefetch(v, np.int64(col[min(e + AHEAD, col.shape[0] - 1)]) * F, F)
                x = here + load(k, j * H, H)
                p = exponential(where_positive(x, x, x * slopes) - top)
                value = load(v, j * F, F)
                total = total + p
                if save:
                    positive = positive + where_positive(x, p, nothing)
                if drop:
                    counter = counter_of(implied, columns, i, j, edge[e])
                    p = p * kept(keys, 0, counter, threshold, scale, H)
                sum_ = fma(repeat(p, F), value, sum_)
                if save:
                    sum_positive = fma(repeat(where_positive(x, p, nothing), F), value, sum_positive)
            store(m, i * H, top)
            store(z, i * H, total)
            share = reciprocal(total)
            store(out, i * F, sum_ * repeat(share, F))
            if save:
                store(plus, i * F, sum_positive * repeat(share, F))
                store(plus_mass, i * H, positive * share)

    @njit(nogil=True, cache=True)
    def listeners(start, stop, rowptr, gradient, q, m, z, out, plus, plus_mass, slope, table, dq):
        """dq, and one row (q, m, 1/z, D) a listener in `table`: what the speakers' pass gathers, side by
        side.
        """
        rest = splat(q.dtype.type(1 - slope), H)
        for i in range(start, stop):
            g = load(gradient, i * F, F)
            d = sums(g * load(out, i * F, F), H)
            store(table, i * 4 * H, load(q, i * H, H))
            store(table, (i * 4 + 1) * H, load(m, i * H, H))
            store(table, (i * 4 + 2) * H, reciprocal(load(z, i * H, H)))
            store(table, (i * 4 + 3) * H, d)
            store(dq, i * H, rest * (sums(g * load(plus, i * F, F), H) - d * load(plus_mass, i * H, H)))

    @njit(nogil=True, cache=True)
    def speakers(
        start, stop, colptr, row, edge, table, gradient, k, v, seeds, threshold, scale, implied, slope, dk, dv
    ):
        number = k.dtype.type
        keys, drop, columns = head_keys(seeds, H), threshold > np.uint64(0), k.shape[0]
        nothing, none = splat(number(0), H), splat(number(0), F)
        slopes, rest, scale = splat(number(slope), H), splat(number(1 - slope), H), number(scale)
        for j in range(start, stop):
            here = load(k, j * H, H)
            b, b_positive, a, a_positive = nothing, nothing, none, none
            for e in range(colptr[j], colptr[j + 1]):
                i = np.int64(row[e])
                soon = np.int64(row[min(e + AHEAD, row.shape[0] - 1)])
                prefetch(gradient, soon * F, F)
                prefetch(table, soon * 4 * H, T)
                x = load(table, i * 4 * H, H) + here
                p = exponential(where_positive(x, x, x * slopes) - load(table, (i * 4 + 1) * H, H))
                p = p * load(table, (i * 4 + 2) * H, H)
                d = load(table, (i * 4 + 3) * H, H)
                b = fma(p, d, b)
                b_positive = fma(where_positive(x, p, nothing), d, b_positive)
                if drop:
                    counter = counter_of(implied, columns, i, j, edge[e])
                    p = p * kept(keys, 0, counter, threshold, scale, H)
                g = load(gradient, i * F, F)
                a = fma(repeat(p, F), g, a)
                a_positive = fma(repeat(where_positive(x, p, nothing), F), g, a_positive)
            value = load(v, j * F, F)
            store(dv, j * F, a)
            flat, steep = sums(a * value, H) - b, sums(a_positive * value, H) - b_positive
            store(dk, j * H, slopes * flat + rest * steep)

    return forward, listeners, speakers


@njit(nogil=True, cache=True)
def leaky(x, slope):
    return where_positive(x, x, x * splat(slope, x))


@njit(nogil=True, cache=True)
def edge_number(array, heads, e, like):
    """A per-edge number for each head, from an array of one head (shared) or of all."""
    return splat(array[e], like) if heads == 1 else load(array, e * heads, like)


@njit(nogil=True, cache=True)
def add_edge_vector(x, array, heads, width, e, one):
    """x + a per-edge vector for each head; `one` has the `width` lanes of a single head."""
    if heads == 0:
        return x
    if heads == 1:
        return x + tile(load(array, e * width, one), x)
    return x + load(array, e * heads * width, x)


@njit(nogil=True, cache=True)
def store_edge_number(array, heads, e, x):
    """Heads that share an edge input add up in its one slot."""
    if heads == 1:
        array[e] = first(sums(x, 1))
    else:
        store(array, e * heads, x)


@njit(nogil=True, cache=True)
def store_edge_vector(array, heads, width, e, x, one):
    if heads == 1:
        store(array, e * width, over_heads(x, one))
    else:
        store(array, e * heads * width, x)


@njit(nogil=True, cache=True)
def lane_scores(kind, x, y, a, slope, degree, bias, hb, weight, hw, e, ones):
    """One edge, all heads, from x = q_i and y = k_j + key_e: what the formula compares, s, w·s and l."""
    none = ones - ones
    compared, similarity, logit = none, ones, none
    if kind == ADDITIVE:
        compared = sums(x + y, ones)
        logit = leaky(compared, slope)
    elif kind == ADDITIVE_V2:
        logit = sums(a * leaky(x + y, slope), ones)
    elif kind == DOT:
        logit = sums(x * y, ones)
    elif kind == POWER:
        compared = sums(x * y, ones)
        for _ in range(degree):
            similarity = similarity * compared
    base = similarity * edge_number(weight, hw, e, ones) if hw else similarity
    if hb:
        logit = logit + edge_number(bias, hb, e, ones)
    return compared, similarity, base, logit


@njit(nogil=True, cache=True)
def lane_gradient(kind, x, y, a, slope, degree, degrees, weight, hw, e, compared, share, r, ds):
    """dL/d(x + y) where they are added; where they are multiplied, what multiplies the other."""
    if kind == ADDITIVE:
        return repeat(where_positive(compared, ds, ds * splat(slope, ds)), x)
    if kind == ADDITIVE_V2:
        dy = repeat(ds, x) * a
        return where_positive(x + y, dy, dy * splat(slope, x))
    if kind == POWER:
        change = share * r * splat(degrees, ds)
        for _ in range(degree - 1):
            change = change * compared
        if hw:
            # An edge of weight 0 is no part of the maximum: its share may be inf.
            given = edge_number(weight, hw, e, ds)
            change = where_nonzero(given, change * given, given)
        return repeat(change, x)
    return repeat(ds, x)


@cache
def shaped_kernels(kind_name: str, heads: int, key_features: int, features: int):
    """Every kind with every extra, for one shape: `forward_rows` and its kin with all of a row in registers.

    Worth a compilation (a second or two, kept on disk) where edges are many: ten times as fast as the
    general ones.
    """
    kind, H, C, D = KINDS[kind_name], heads, max(key_features, 1), features
    K, F = H * C, H * D
    multiplies, compares = kind in (DOT, POWER), kind != UNIFORM

    @njit(nogil=True, cache=True)
    def forward(
        start, stop, rowptr, col, edge, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
        slope, degree, seeds, threshold, scale, implied, columns, out, m, z,
    ):  # fmt: skip
        number = v.dtype.type
        keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
        slope, scale = number(slope), number(scale)
        none, ones = splat(number(0), H), splat(number(1), H)
        nowhere, nothing = splat(number(0), K), splat(number(0), F)
        silent, one_key, one_value = splat(number(-np.inf), H), splat(number(0), C), splat(number(0), D)
        factors = load(a, 0, K) if kind == ADDITIVE_V2 else nowhere
        for i in range(start, stop):
            x = load(q, i * K, K) if compares else nowhere
            top, total, sum_ = silent, none, nothing
            for at in range(rowptr[i], rowptr[i + 1]):
                j, e = np.int64(col[at]), np.int64(edge[at])
                soon = np.int64(col[min(at + AHEAD, col.shape[0] - 1)])
                prefetch(v, soon * F, F)
                y = nowhere
                if compares:
                    prefetch(k, soon * K, K)
                    y = add_edge_vector(load(k, j * K, K), key, hk, C, e, one_key)
                _, _, base, logit = lane_scores(
                    kind, x, y, factors, slope, degree, bias, hb, weight, hw, e, ones
                )
                # Two exponentials an edge and no branch: with eight heads some maximum moves at most edges.
                new = larger(top, where_nonzero(base, logit, silent))
                shift = finite(new)
                less = exponential(top - shift)
                # Not base·exp: an edge of weight 0 is no part of the maximum, so its exp may be inf.
                p = where_nonzero(base, base * exponential(logit - shift), none)
                top, total = new, fma(total, less, p)
                if drop:
                    p = p * kept(keys, 0, counter_of(implied, columns, i, j, e), threshold, scale, H)
                heard = add_edge_vector(load(v, j * F, F), value, hv, D, e, one_value)
                sum_ = fma(repeat(p, F), heard, sum_ * repeat(less, F))
            store(m, i * H, finite(top))
            store(z, i * H, total)
            # Divided, not multiplied by 1/z: z may be so small that 1/z is inf.
            total = where_nonzero(total, total, ones)
            sum_ = where_nonzero(repeat(total, F), sum_ / repeat(total, F), nothing)
            store(out, i * F, sum_)

    @njit(nogil=True, cache=True)
    def listeners(start, stop, rowptr, gradient, out, m, z, table):
        """(m, z, D) a listener side by side, for the two passes below; inf for a z of 0, which makes all
        shares 0.
        """
        number = gradient.dtype.type
        infinite = splat(number(np.inf), H)
        for i in range(start, stop):
            total = load(z, i * H, H)
            store(table, i * 3 * H, load(m, i * H, H))
            store(table, (i * 3 + 1) * H, where_nonzero(total, total, infinite))
            store(table, (i * 3 + 2) * H, sums(load(gradient, i * F, F) * load(out, i * F, F), H))

    @njit(nogil=True, cache=True)
    def rows(
        start, stop, rowptr, col, edge, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
        slope, degree, seeds, threshold, scale, implied, columns, gradient, table,
        dq, da, dbias, dweight, dkey, dvalue,
    ):  # fmt: skip
        number = v.dtype.type
        keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
        slope, scale, degrees = number(slope), number(scale), number(degree)
        none, ones, nowhere = splat(number(0), H), splat(number(1), H), splat(number(0), K)
        one_key, one_value = splat(number(0), C), splat(number(0), D)
        factors = load(a, 0, K) if kind == ADDITIVE_V2 else nowhere
        for i in range(start, stop):
            x = load(q, i * K, K) if compares else nowhere
            g = load(gradient, i * F, F)
            m, z = load(table, i * 3 * H, H), load(table, (i * 3 + 1) * H, H)
            d = load(table, (i * 3 + 2) * H, H)
            sum_q, sum_a = nowhere, nowhere
            for at in range(rowptr[i], rowptr[i + 1]):
                j, e = np.int64(col[at]), np.int64(edge[at])
                soon = np.int64(col[min(at + AHEAD, col.shape[0] - 1)])
                prefetch(v, soon * F, F)
                y = nowhere
                if compares:
                    prefetch(k, soon * K, K)
                    y = add_edge_vector(load(k, j * K, K), key, hk, C, e, one_key)
                compared, similarity, base, logit = lane_scores(
                    kind, x, y, factors, slope, degree, bias, hb, weight, hw, e, ones
                )
                share = exponential(logit - m) / z
                p = where_nonzero(base, base * share, none)
                heard = add_edge_vector(load(v, j * F, F), value, hv, D, e, one_value)
                r, spoken = sums(g * heard, H), p
                if drop:
                    keep = kept(keys, 0, counter_of(implied, columns, i, j, e), threshold, scale, H)
                    r, spoken = r * keep, p * keep
                r = r - d
                ds = p * r
                if len(dbias) > 0:
                    store_edge_number(dbias, hb, e, ds)
                if len(dweight) > 0:
                    store_edge_number(dweight, hw, e, similarity * share * r)
                if len(dvalue) > 0:
                    store_edge_vector(dvalue, hv, D, e, repeat(spoken, F) * g, one_value)
                if compares:
                    change = lane_gradient(
                        kind, x, y, factors, slope, degree, degrees, weight, hw, e, compared, share, r, ds
                    )
                    sum_q = fma(change, y, sum_q) if multiplies else sum_q + change
                    if len(dkey) > 0:
                        store_edge_vector(dkey, hk, C, e, change * x if multiplies else change, one_key)
                    if kind == ADDITIVE_V2:
                        sum_a = fma(repeat(ds, K), leaky(x + y, slope), sum_a)
            if len(dq) > 0:
                store(dq, i * K, sum_q)
            if len(da) > 0:
                store(da, i * K, sum_a)

    @njit(nogil=True, cache=True)
    def speakers(
        start, stop, colptr, row, edge, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
        slope, degree, seeds, threshold, scale, implied, columns, gradient, table, dk, dv,
    ):  # fmt: skip
        number = v.dtype.type
        keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
        slope, scale, degrees = number(slope), number(scale), number(degree)
        none, ones = splat(number(0), H), splat(number(1), H)
        nowhere, nothing = splat(number(0), K), splat(number(0), F)
        one_key, one_value = splat(number(0), C), splat(number(0), D)
        factors = load(a, 0, K) if kind == ADDITIVE_V2 else nowhere
        for j in range(start, stop):
            here = load(k, j * K, K) if compares else nowhere
            said = load(v, j * F, F)
            sum_k, sum_v = nowhere, nothing
            for at in range(colptr[j], colptr[j + 1]):
                i, e = np.int64(row[at]), np.int64(edge[at])
                soon = np.int64(row[min(at + AHEAD, row.shape[0] - 1)])
                prefetch(gradient, soon * F, F)
                prefetch(table, soon * 3 * H, H)
                x, y = nowhere, nowhere
                if compares:
                    prefetch(q, soon * K, K)
                    x, y = load(q, i * K, K), add_edge_vector(here, key, hk, C, e, one_key)
                compared, _, base, logit = lane_scores(
                    kind, x, y, factors, slope, degree, bias, hb, weight, hw, e, ones
                )
                share = exponential(logit - load(table, i * 3 * H, H)) / load(table, (i * 3 + 1) * H, H)
                p = where_nonzero(base, base * share, none)
                spoken, g = p, load(gradient, i * F, F)
                keep = ones
                if drop:
                    keep = kept(keys, 0, counter_of(implied, columns, i, j, e), threshold, scale, H)
                    spoken = p * keep
                sum_v = fma(repeat(spoken, F), g, sum_v)
                if compares:
                    r = sums(g * add_edge_vector(said, value, hv, D, e, one_value), H)
                    r = r * keep - load(table, (i * 3 + 2) * H, H)
                    change = lane_gradient(
                        kind, x, y, factors, slope, degree, degrees, weight, hw, e, compared, share, r, p * r
                    )
                    sum_k = fma(change, x, sum_k) if multiplies else sum_k + change
            if len(dk) > 0:
                store(dk, j * K, sum_k)
            if len(dv) > 0:
                store(dv, j * F, sum_v)

    return forward, listeners, rows, speakers


@njit(nogil=True, cache=True)
def dot(x, at_x, y, at_y, count):
    lanes = splat(x.dtype.type(0), 8)
    whole = count - count % 8
    for c in range(0, whole, 8):
        lanes = fma(load(x, at_x + c, 8), load(y, at_y + c, 8), lanes)
    total = first(sums(lanes, 1))
    for c in range(whole, count):
        total += x[at_x + c] * y[at_y + c]
    return total


@njit(nogil=True, cache=True)
def add_scaled(out, at_out, scale, x, at_x, count):
    """out += scale · x"""
    lanes = splat(scale, 8)
    whole = count - count % 8
    for c in range(0, whole, 8):
        store(out, at_out + c, fma(lanes, load(x, at_x + c, 8), load(out, at_out + c, 8)))
    for c in range(whole, count):
        out[at_out + c] += scale * x[at_x + c]


@njit(nogil=True, cache=True)
def exponentials(x, count):
    """exp in place over a scratch array whose length is a multiple of 8."""
    for c in range(0, count, 8):
        store(x, c, exponential(load(x, c, 8)))


@njit(nogil=True, cache=True)
def exponential1(x):
    return first(exponential(splat(x, 1)))


@njit(nogil=True, cache=True)
def power(x, degree, result):
    """result · x^degree, by multiplication: exact signs, and 0⁰ is 1."""
    for _ in range(degree):
        result *= x
    return result


@njit(nogil=True, cache=True)
def shared(e, h, heads):
    """Where head h of edge e lies in a per-edge array with `heads` heads (1: all share it)."""
    return e * heads + (h if heads > 1 else 0)


@njit(nogil=True, cache=True)
def scores(
    kind, H, dk, q, i, k, j, a, key, hk, e, slope, degree, bias, hb, weight, hw,
    x, similarity, base, logit, at,
):  # fmt: skip
    """One edge, all heads: what the formula compares (x), s, w·s and l."""
    number = q.dtype.type
    for h in range(H):
        at_q, at_k, f = (i * H + h) * dk, (j * H + h) * dk, at + h
        at_key = shared(e, h, hk) * dk
        similar, s = number(1), number(0)
        if kind == ADDITIVE:
            s = q[at_q] + k[at_k]
            if hk:
                s += key[at_key]
            x[f] = s
            s = s if s > number(0) else slope * s
        elif kind == ADDITIVE_V2:
            for d in range(dk):
                y = q[at_q + d] + k[at_k + d]
                if hk:
                    y += key[at_key + d]
                s += a[h * dk + d] * (y if y > number(0) else slope * y)
        elif kind in (DOT, POWER):
            s = dot(q, at_q, k, at_k, dk)
            if hk:
                s += dot(q, at_q, key, at_key, dk)
            if kind == POWER:
                x[f] = s
                similar, s = power(s, degree, number(1)), number(0)
        similarity[f] = similar
        base[f] = similar * weight[shared(e, h, hw)] if hw else similar
        logit[f] = s + bias[shared(e, h, hb)] if hb else s


@njit(nogil=True, cache=True)
def block_of(heads):
    """Edges handled together, few enough that their scores stay in the first cache, and scratch to hold
    them.
    """
    block = max(1, min(64, 1024 // heads))
    return block, (block * heads + 7) // 8 * 8


@njit(nogil=True, cache=True, fastmath=FAST)
def forward_rows(
    start, stop, rowptr, col, edge, kind, H, dk, dv, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
    slope, degree, seeds, threshold, scale, implied, columns, out, m, z,
):  # fmt: skip
    """Softmax over each row in blocks of edges: scores, then a new maximum, then exp, then the weighted
    sum.
    """
    number = q.dtype.type
    slope, scale, silent = number(slope), number(scale), number(-np.inf)
    keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
    block, room = block_of(H)
    x, similarity, base, logit = (
        np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype),
    )  # fmt: skip
    top, peak, total = np.empty(H, q.dtype), np.empty(H, q.dtype), np.empty(H, np.float64)
    sum_ = np.empty(H * dv, q.dtype)
    for i in range(start, stop):
        top[:], total[:], sum_[:] = silent, 0, number(0)
        low, high = np.int64(rowptr[i]), np.int64(rowptr[i + 1])
        for here in range(low, high, block):
            count = min(block, high - here)
            peak[:] = top
            for b in range(count):
                j, e = np.int64(col[here + b]), np.int64(edge[here + b])
                scores(
                    kind, H, dk, q, i, k, j, a, key, hk, e, slope, degree, bias, hb, weight, hw,
                    x, similarity, base, logit, b * H,
                )  # fmt: skip
                for h in range(H):
                    if base[b * H + h] != number(0) and logit[b * H + h] > peak[h]:
                        peak[h] = logit[b * H + h]
            for h in range(H):
                if peak[h] > top[h]:
                    if top[h] > silent:
                        less = exponential1(top[h] - peak[h])
                        total[h] *= less
                        for d in range(dv):
                            sum_[h * dv + d] *= less
                    top[h] = peak[h]
                if peak[h] == silent:
                    peak[h] = number(0)
            for b in range(count):
                for h in range(H):
                    logit[b * H + h] -= peak[h]
            exponentials(logit, count * H)
            for b in range(count):
                j, e = np.int64(col[here + b]), np.int64(edge[here + b])
                for h in range(H):
                    f = b * H + h
                    # Not base·exp: an edge of weight 0 is no part of the maximum, so its exp may be inf.
                    p = base[f] * logit[f] if base[f] != number(0) else number(0)
                    total[h] += p
                    if drop:
                        p *= first(kept(keys, h, counter_of(implied, columns, i, j, e), threshold, scale, 1))
                    add_scaled(sum_, h * dv, p, v, (j * H + h) * dv, dv)
                    if hv:
                        add_scaled(sum_, h * dv, p, value, shared(e, h, hv) * dv, dv)
        for h in range(H):
            z_ih = number(total[h])
            m[i * H + h] = top[h] if top[h] > silent else number(0)
            z[i * H + h] = z_ih
            for d in range(dv):
                out[(i * H + h) * dv + d] = number(0) if z_ih == number(0) else sum_[h * dv + d] / z_ih


@njit(nogil=True, cache=True)
def row_dots(start, stop, rowptr, gradient, out, H, dv, result):
    """D_i = g_i · out_i"""
    for i in range(start * H, stop * H):
        result[i] = dot(gradient, i * dv, out, i * dv, dv)


@njit(nogil=True, cache=True)
def score_gradient(kind, x, slope, degree, degrees, weight, share, r, ds):
    """dL/dx from dL/d(logit) = ds; for a power, whose x is not in the logit, from its share exp(logit −
    m)/z.
    """
    if kind == ADDITIVE:
        return ds if x > 0 else slope * ds
    if kind == POWER:
        # An edge of weight 0 is no part of the maximum: its share may be inf.
        return power(x, degree - 1, weight * degrees) * share * r if weight != 0 else weight
    return ds


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_rows(
    start, stop, rowptr, col, edge, kind, H, dk, dv, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
    slope, degree, seeds, threshold, scale, implied, columns, gradient, m, z, D,
    dq, da, dbias, dweight, dkey, dvalue,
):  # fmt: skip
    """Everything summed over a listener's edges, and everything that belongs to one edge; empty arrays
    are skipped.
    """
    number = q.dtype.type
    slope, scale, degrees = number(slope), number(scale), number(degree)
    keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
    block, room = block_of(H)
    x, similarity, base, logit = (
        np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype),
    )  # fmt: skip
    need_q, need_a, need_key = len(dq) > 0, len(da) > 0, len(dkey) > 0
    for i in range(start, stop):
        for f in range(i * H * dk, (i + 1) * H * dk):
            if need_q:
                dq[f] = number(0)
            if need_a:
                da[f] = number(0)
        low, high = np.int64(rowptr[i]), np.int64(rowptr[i + 1])
        for here in range(low, high, block):
            count = min(block, high - here)
            for b in range(count):
                j, e = np.int64(col[here + b]), np.int64(edge[here + b])
                scores(
                    kind, H, dk, q, i, k, j, a, key, hk, e, slope, degree, bias, hb, weight, hw,
                    x, similarity, base, logit, b * H,
                )  # fmt: skip
                for h in range(H):
                    logit[b * H + h] -= m[i * H + h]
            exponentials(logit, count * H)
            for b in range(count):
                j, e = np.int64(col[here + b]), np.int64(edge[here + b])
                # Heads that share an edge input add up in its one slot.
                if hb == 1 and len(dbias) > 0:
                    dbias[e] = number(0)
                if hw == 1 and len(dweight) > 0:
                    dweight[e] = number(0)
                if hk == 1 and need_key:
                    dkey[e * dk : (e + 1) * dk] = number(0)
                if hv == 1 and len(dvalue) > 0:
                    dvalue[e * dv : (e + 1) * dv] = number(0)
                for h in range(H):
                    f, at_g = b * H + h, (i * H + h) * dv
                    z_ih = z[i * H + h]
                    share = number(0) if z_ih == number(0) else logit[f] / z_ih
                    p = base[f] * share if base[f] != number(0) else number(0)
                    keep = number(1)
                    if drop:
                        counter = counter_of(implied, columns, i, j, e)
                        keep = first(kept(keys, h, counter, threshold, scale, 1))
                    r = dot(gradient, at_g, v, (j * H + h) * dv, dv)
                    if hv:
                        r += dot(gradient, at_g, value, shared(e, h, hv) * dv, dv)
                    r = keep * r - D[i * H + h]
                    ds = p * r
                    if len(dbias) > 0:
                        if hb == 1:
                            dbias[e] += ds
                        else:
                            dbias[e * H + h] = ds
                    if len(dweight) > 0:
                        change = similarity[f] * share * r
                        if hw == 1:
                            dweight[e] += change
                        else:
                            dweight[e * H + h] = change
                    if len(dvalue) > 0:
                        at = shared(e, h, hv) * dv
                        if hv > 1:
                            dvalue[at : at + dv] = number(0)
                        add_scaled(dvalue, at, p * keep, gradient, at_g, dv)
                    if not (need_q or need_a or need_key) or kind == UNIFORM:
                        continue
                    at_q, at_k, at_key = (i * H + h) * dk, (j * H + h) * dk, shared(e, h, hk) * dk
                    if need_key and hk > 1:
                        dkey[at_key : at_key + dk] = number(0)
                    if kind == ADDITIVE_V2:
                        for d in range(dk):
                            y = q[at_q + d] + k[at_k + d]
                            if hk:
                                y += key[at_key + d]
                            dy = ds * a[h * dk + d] * (number(1) if y > number(0) else slope)
                            if need_q:
                                dq[at_q + d] += dy
                            if need_key:
                                dkey[at_key + d] += dy
                            if need_a:
                                da[at_q + d] += ds * (y if y > number(0) else slope * y)
                        continue
                    w = weight[shared(e, h, hw)] if hw else number(1)
                    dx = score_gradient(kind, x[f], slope, degree, degrees, w, share, r, ds)
                    if kind == ADDITIVE:
                        if need_q:
                            dq[at_q] += dx
                        if need_key:
                            dkey[at_key] += dx
                    else:
                        if need_q:
                            add_scaled(dq, at_q, dx, k, at_k, dk)
                            if hk:
                                add_scaled(dq, at_q, dx, key, at_key, dk)
                        if need_key:
                            add_scaled(dkey, at_key, dx, q, at_q, dk)


@njit(nogil=True, cache=True, fastmath=FAST)
def backward_columns(
    start, stop, colptr, row, edge, kind, H, dk, dv, q, k, v, a, bias, hb, weight, hw, key, hk, value, hv,
    slope, degree, seeds, threshold, scale, implied, columns, gradient, m, z, D, dk_, dv_,
):  # fmt: skip
    """dk and dv: everything summed over a speaker's edges, by the transpose, so no two threads meet."""
    number = q.dtype.type
    slope, scale, degrees = number(slope), number(scale), number(degree)
    keys, drop = head_keys(seeds, H), threshold > np.uint64(0)
    block, room = block_of(H)
    x, similarity, base, logit = (
        np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype), np.zeros(room, q.dtype),
    )  # fmt: skip
    need_k, need_v = len(dk_) > 0, len(dv_) > 0
    for j in range(start, stop):
        if need_k:
            dk_[j * H * dk : (j + 1) * H * dk] = number(0)
        if need_v:
            dv_[j * H * dv : (j + 1) * H * dv] = number(0)
        low, high = np.int64(colptr[j]), np.int64(colptr[j + 1])
        for here in range(low, high, block):
            count = min(block, high - here)
            for b in range(count):
                i, e = np.int64(row[here + b]), np.int64(edge[here + b])
                scores(
                    kind, H, dk, q, i, k, j, a, key, hk, e, slope, degree, bias, hb, weight, hw,
                    x, similarity, base, logit, b * H,
                )  # fmt: skip
                for h in range(H):
                    logit[b * H + h] -= m[i * H + h]
            exponentials(logit, count * H)
            for b in range(count):
                i, e = np.int64(row[here + b]), np.int64(edge[here + b])
                for h in range(H):
                    f, at_g, at_v = b * H + h, (i * H + h) * dv, (j * H + h) * dv
                    z_ih = z[i * H + h]
                    share = number(0) if z_ih == number(0) else logit[f] / z_ih
                    p = base[f] * share if base[f] != number(0) else number(0)
                    keep = number(1)
                    if drop:
                        counter = counter_of(implied, columns, i, j, e)
                        keep = first(kept(keys, h, counter, threshold, scale, 1))
                    if need_v:
                        add_scaled(dv_, at_v, p * keep, gradient, at_g, dv)
                    if not need_k or kind == UNIFORM:
                        continue
                    r = dot(gradient, at_g, v, at_v, dv)
                    if hv:
                        r += dot(gradient, at_g, value, shared(e, h, hv) * dv, dv)
                    r = keep * r - D[i * H + h]
                    ds = p * r
                    at_q, at_k, at_key = (i * H + h) * dk, (j * H + h) * dk, shared(e, h, hk) * dk
                    if kind == ADDITIVE_V2:
                        for d in range(dk):
                            y = q[at_q + d] + k[at_k + d]
                            if hk:
                                y += key[at_key + d]
                            dk_[at_k + d] += ds * a[h * dk + d] * (number(1) if y > number(0) else slope)
                        continue
                    w = weight[shared(e, h, hw)] if hw else number(1)
                    dx = score_gradient(kind, x[f], slope, degree, degrees, w, share, r, ds)
                    if kind == ADDITIVE:
                        dk_[at_k] += dx
                    else:
                        add_scaled(dk_, at_k, dx, q, at_q, dk)


@njit(nogil=True, cache=True)
def sum_rows(parts, rows, count, out):
    """Σ over rows, in one fixed order however many threads filled them; 64 rows at a time, to round less."""
    partial = np.empty(count, parts.dtype)
    out[:] = 0
    for here in range(0, rows, 64):
        partial[:] = 0
        for i in range(here, min(here + 64, rows)):
            for c in range(count):
                partial[c] += parts[i * count + c]
        for c in range(count):
            out[c] += partial[c]


@njit(nogil=True, cache=True)
def transpose(rowptr, col, edge, colptr, row, edge_transposed):
    """The same edges by speaker, each speaker's in order of listener: a counting sort."""
    colptr[:] = 0
    for e in range(len(col)):
        colptr[np.int64(col[e]) + 1] += 1
    for j in range(len(colptr) - 1):
        colptr[j + 1] += colptr[j]
    place = colptr.copy()
    for i in range(len(rowptr) - 1):
        for e in range(rowptr[i], rowptr[i + 1]):
            j = np.int64(col[e])
            at = np.int64(place[j])
            row[at], edge_transposed[at] = i, edge[e]
            place[j] += 1
