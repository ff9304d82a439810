"""Sparse attention against the formula written out, and against itself in plain torch, in every mode
torch has.
"""

import math

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap

from heedful.kernels import sparse_operators
from heedful.kernels.dropout import keep_mask
from heedful.kernels.sparse import KINDS, Structure, sparse_attention, sparse_composite
from heedful.kernels.sparse_operators import build_transpose

EXTRAS = ("bias", "weight", "key", "value")
CASES = [(), ("bias",), ("weight",), ("key",), ("value",), ("dropout",), (*EXTRAS, "dropout")]
# Which kernels: the general ones, or those compiled for one shape (which small problems do not get by
# themselves).
PATHS = {"general": 1 << 60, "shaped": 0}


def structure_of(listener, speaker, listeners, speakers, index=torch.int32):
    """CSR of edges given in any order, and the transpose."""
    order = torch.argsort(listener, stable=True)
    rowptr = torch.zeros(listeners + 1, dtype=index)
    rowptr[1:] = torch.bincount(listener, minlength=listeners).cumsum(0)
    csr = rowptr, speaker[order].to(index), order.to(index)
    return Structure(*csr, *build_transpose(*csr, speakers))


def random_structure(listeners=13, speakers=9, edges=60, index=torch.int32):
    """Duplicates, a hub that hears everybody often, and listeners (the last two, at least) that hear
    nobody.
    """
    listener = torch.randint(0, max(listeners - 2, 1), (edges,))
    listener[: edges // 3] = 0
    return structure_of(listener, torch.randint(0, speakers, (edges,)), listeners, speakers, index)


def problem(
    kind, extras=(), heads=3, dk=5, dv=7, dtype=torch.float64, structure=None, shared=("bias", "value")
):
    """(tensors, options): everything that takes a gradient, and the rest. `shared` extras have one head."""
    structure = structure or random_structure()
    listeners, speakers, edges = len(structure.rowptr) - 1, len(structure.colptr) - 1, len(structure.col)
    dk = 1 if kind == "additive" else dk
    shapes = {"q": (listeners, heads, dk), "k": (speakers, heads, dk), "v": (speakers, heads, dv)}
    if kind == "additive_v2":
        shapes["a"] = (heads, dk)
    for name, tail in (("bias", ()), ("weight", ()), ("key", (dk,)), ("value", (dv,))):
        if name in extras and not (kind == "uniform" and name == "key"):
            shapes[name] = (edges, 1 if name in shared else heads, *tail)
    if kind == "uniform":
        del shapes["q"], shapes["k"]
    tensors = {name: torch.randn(shape, dtype=dtype) for name, shape in shapes.items()}
    if "weight" in tensors:  # zeros, and signs; but no sum near 0, where rounding is amplified without bound
        tensors["weight"] = tensors["weight"].abs() + 0.1
        tensors["weight"][::5] = 0
        tensors["weight"][1::7] *= -0.05
    if kind == "power":
        tensors["q"], tensors["k"] = (torch.nn.functional.normalize(tensors[name], dim=-1) for name in "qk")
    options = {"degree": 2}
    if "dropout" in extras:
        options |= {"dropout": 0.4, "seed": torch.tensor([1234])}
    return {name: t.requires_grad_() for name, t in tensors.items()}, structure, options


def call(function, kind, tensors, structure, options):
    extras = {name: t for name, t in tensors.items() if name not in ("q", "k", "v")}
    return function(kind, tensors.get("q"), tensors.get("k"), tensors["v"], structure, **extras, **options)


def with_gradients(function, kind, tensors, structure, options, gradient):
    out = call(function, kind, tensors, structure, options)
    return [out, *torch.autograd.grad(out, list(tensors.values()), gradient.to(out))]


def check_against_composite(kind, tensors, structure, options, tolerance):
    """Forward and every gradient, the composite's in float64."""
    exact = {name: t.detach().double().requires_grad_() for name, t in tensors.items()}
    gradient = torch.randn(len(structure.rowptr) - 1, *tensors["v"].shape[1:], dtype=torch.float64)
    expected = with_gradients(sparse_composite, kind, exact, structure, options, gradient)
    actual = with_gradients(sparse_attention, kind, tensors, structure, options, gradient)
    for name, x, y in zip(("out", *tensors), actual, expected, strict=True):
        assert x.dtype == tensors["v"].dtype and x.shape == y.shape
        assert torch.isfinite(x).all(), name
        scale = y.detach().abs().max().item() if y.numel() else 0
        assert torch.allclose(x.double(), y, rtol=0, atol=tolerance * max(scale, 1e-3)), name


@pytest.fixture(params=list(PATHS))
def path(request, monkeypatch):
    monkeypatch.setattr(sparse_operators, "WORTH_A_SHAPE", PATHS[request.param])
    return request.param


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    torch.compiler.reset()


def formula(kind, tensors, structure, options):
    """The definition, one edge at a time, in float64."""
    t = {name: x.detach().double().numpy() for name, x in tensors.items()}
    rowptr, col, edge = (x.numpy() for x in structure[:3])
    listeners, (speakers, heads, dv) = len(rowptr) - 1, t["v"].shape
    out = np.zeros((listeners, heads, dv))

    def leaky(x):
        return np.where(x > 0, x, 0.2 * x)

    def of(name, e, h):
        return t[name][e, min(h, t[name].shape[1] - 1)] if name in t else 0.0

    for i in range(listeners):
        for h in range(heads):
            numerator, normaliser = np.zeros(dv), 0.0
            for at in range(rowptr[i], rowptr[i + 1]):
                j, e = int(col[at]), int(edge[at])
                s, l = 1.0, 0.0
                if kind != "uniform":
                    x, y = t["q"][i, h], t["k"][j, h] + of("key", e, h)
                    if kind == "additive":
                        l = leaky(x + y)[0]
                    elif kind == "additive_v2":
                        l = t["a"][h] @ leaky(x + y)
                    elif kind == "dot":
                        l = x @ y
                    else:
                        s = (x @ y) ** options["degree"]
                w = s * math.exp(l + of("bias", e, h)) * (of("weight", e, h) if "weight" in t else 1.0)
                normaliser += w
                if "dropout" in options:
                    counter = i * speakers + j if options.get("implied") else e
                    rate = options["dropout"]
                    kept = keep_mask(options["seed"], h, torch.tensor([counter]), rate).item()
                    w = w * kept / (1 - rate)
                numerator += w * (t["v"][j, h] + of("value", e, h))
            if normaliser != 0:
                out[i, h] = numerator / normaliser
    return torch.from_numpy(out)


@pytest.mark.parametrize("extras", CASES, ids="+".join)
@pytest.mark.parametrize("kind", KINDS)
def test_formula(kind, extras):
    tensors, structure, options = problem(kind, extras)
    for implied in (False, True) if "dropout" in extras else (False,):
        options |= {"implied": implied}
        expected = formula(kind, tensors, structure, options)
        for function in (sparse_attention, sparse_composite):
            assert torch.allclose(call(function, kind, tensors, structure, options), expected, atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients(kind, dtype, path):
    for extras in CASES if dtype == torch.float64 else (CASES[0], CASES[-1]):
        for shared in (("bias", "value"), ("weight", "key")) if len(extras) > 1 else ((),):
            tensors, structure, options = problem(kind, extras, dtype=dtype, shared=shared)
            tolerance = 1e-11 if dtype == torch.float64 else 2e-5
            check_against_composite(kind, tensors, structure, options, tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("heads", "dk", "dv"), [(1, 1, 1), (2, 8, 16), (4, 3, 33), (5, 17, 8), (1, 64, 7), (40, 2, 3)]
)
def test_any_shape(kind, heads, dk, dv):
    tensors, structure, options = problem(kind, EXTRAS, heads, dk, dv)
    check_against_composite(kind, tensors, structure, options, 1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("dropout", [(), ("dropout",)])
def test_graph_attention_path(dtype, dropout):
    """The plain additive kernels, with and without what forward saves for them."""
    tensors, structure, options = problem("additive", dropout, heads=8, dv=8, dtype=dtype)
    saved = sparse_operators.forward(
        "additive", *(tensors[name].detach() for name in "qkv"), None, *structure[:3],
        None, None, None, None, 0.2, 2, 0.0, None, False, True,
    )  # fmt: skip
    assert saved[3].shape == saved[0].shape, "this test is about the kernels that save O⁺"
    check_against_composite(
        "additive", tensors, structure, options, 1e-11 if dtype == torch.float64 else 1e-5
    )
    for only in "qkv":
        some = {name: t.detach().requires_grad_(name == only) for name, t in tensors.items()}
        gradient = torch.randn_like(saved[0])
        results = [
            torch.autograd.grad(call(f, "additive", some, structure, options), some[only], gradient)[0]
            for f in (sparse_attention, sparse_composite)
        ]
        assert torch.allclose(*results, atol=1e-10 if dtype == torch.float64 else 1e-4)


@pytest.mark.parametrize("degree", [1, 3, 4])
def test_odd_powers_may_be_negative(degree, path):
    tensors, structure, options = problem("power", ("weight", "bias"))
    tensors["k"] = tensors["k"].detach().abs().requires_grad_()
    tensors["q"] = tensors["q"].detach().abs().neg().requires_grad_()
    check_against_composite("power", tensors, structure, options | {"degree": degree}, 1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_to_hear(kind, path):
    """No edges at all; every weight 0; every edge silenced: 0, and gradients of 0, never NaN."""
    nobody = torch.zeros(0, dtype=torch.long)
    tensors, structure, options = problem(kind, EXTRAS, structure=structure_of(nobody, nobody, 4, 3))
    results = with_gradients(sparse_attention, kind, tensors, structure, options, torch.ones(4, 3, 7))
    assert all((x == 0).all() for x in results)
    for name, number in (("weight", 0.0), ("bias", -math.inf)):
        tensors, structure, options = problem(kind, EXTRAS, shared=())
        silent = tensors[name].detach().clone()
        silent[structure.edge[: structure.rowptr[1]].long()] = number  # all the first listener hears
        tensors[name] = silent.requires_grad_()
        gradient = torch.zeros(13, 3, 7, dtype=torch.float64)
        gradient[0] = 1
        results = with_gradients(sparse_attention, kind, tensors, structure, options, gradient)
        assert (results[0][0] == 0).all()
        assert all((x == 0).all() for x in results[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_silenced_edges_are_not_there(kind, path):
    """bias −inf or weight 0 equals leaving the edge out, whatever the speaker says."""
    listener, speaker = torch.randint(0, 6, (40,)), torch.randint(0, 5, (40,))
    silent = torch.rand(40) < 0.4
    whole, part = (
        structure_of(listener, speaker, 6, 5),
        structure_of(listener[~silent], speaker[~silent], 6, 5),
    )
    tensors, _, options = problem(kind, structure=whole)
    expected = call(sparse_attention, kind, tensors, part, options)
    bias = torch.zeros(40, 1, dtype=torch.float64).masked_fill(silent[:, None], -math.inf)
    weight = (~silent).double()[:, None]
    loud = torch.where(silent, 1e4, 0.0).double()[:, None]
    for extra in ({"bias": bias}, {"weight": weight}, {"weight": weight, "bias": loud}):
        assert torch.allclose(
            call(sparse_attention, kind, tensors | extra, whole, options), expected, atol=1e-12
        )


@pytest.mark.parametrize("extras", [("weight",), (*EXTRAS, "dropout")], ids="+".join)
@pytest.mark.parametrize("kind", ["power", "dot", "additive_v2"])
def test_one_speaker_is_heard_whatever_its_score(kind, extras, path):
    """A softmax over one edge is 1: scores and weights have gradients of 0, though a score near 0 divides."""
    alone = torch.arange(9)
    tensors, structure, options = problem(
        kind, extras, dtype=torch.float32, structure=structure_of(alone, alone, 9, 9)
    )
    tiny = {name: (1e-4 * tensors[name].detach()).requires_grad_() for name in ("q", "weight")}
    tensors |= tiny
    results = with_gradients(sparse_attention, kind, tensors, structure, options, torch.randn(9, 3, 7))
    for name, x in zip(("out", *tensors), results, strict=True):
        assert (x == 0).all() == (name not in ("out", "v", "value")), name


def test_gradient_of_a_weight_at_zero():
    """The weight's own gradient does not vanish with it."""
    tensors, structure, options = problem("dot", ("weight",), shared=("weight",))
    zero = tensors["weight"].detach() == 0
    assert zero.any()
    # The first listener only: it has other edges too, so its output is smooth there.
    actual = call(sparse_attention, "dot", tensors, structure, options)[0].sum()
    gradient = torch.autograd.grad(actual, tensors["weight"])[0][zero]
    step = 1e-6
    moved = {**tensors, "weight": tensors["weight"].detach() + step * zero}
    change = call(sparse_attention, "dot", moved, structure, options)[0].sum() - actual
    assert gradient.abs().max() > 1e-3
    assert torch.allclose(change, step * gradient.sum(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "power"])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e2, 1e4])
def test_any_scale(kind, scale, path):
    tensors, structure, options = problem(kind, ("bias",), dtype=torch.float32)
    tensors = {name: (t.detach() * scale).requires_grad_() for name, t in tensors.items()}
    for x in with_gradients(sparse_attention, kind, tensors, structure, options, torch.ones(13, 3, 7)):
        assert torch.isfinite(x).all()


def test_nan_comes_out_where_it_went_in(path):
    tensors, structure, options = problem("dot", dtype=torch.float32)
    with torch.no_grad():
        tensors["k"][4] = math.nan
    out = call(sparse_attention, "dot", tensors, structure, options)
    expected = call(sparse_composite, "dot", tensors, structure, options)
    assert torch.equal(out.isnan(), expected.isnan()) and out.isnan().any() and not out.isnan().all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_written(kind, path, monkeypatch):
    """With fresh memory full of NaN, nothing of it comes out."""
    new_empty, empty_like = torch.Tensor.new_empty, torch.empty_like

    def poisoned(function):
        def make(*arguments, **options):
            made = function(*arguments, **options)
            return made.fill_(math.nan if made.is_floating_point() else 2**30)

        return make

    shapes = [(EXTRAS, 3, 7), ((*EXTRAS, "dropout"), 3, 7)] + ([((), 8, 8)] if kind == "additive" else [])
    for extras, heads, dv in shapes:
        tensors, structure, options = problem(kind, extras, heads=heads, dv=dv)
        gradient = torch.randn(13, heads, dv)
        clean = with_gradients(sparse_attention, kind, tensors, structure, options, gradient)
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "new_empty", poisoned(new_empty))
            patch.setattr(torch, "empty_like", poisoned(empty_like))
            for lazy in (structure, structure._replace(colptr=None)):
                dirty = with_gradients(sparse_attention, kind, tensors, lazy, options, gradient)
                assert all(torch.equal(x, y) for x, y in zip(clean, dirty, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_bit_identical_whatever_the_threads(kind, path, monkeypatch):
    monkeypatch.setattr("heedful.kernels.parallel.WORTH_A_THREAD", 0)
    tensors, structure, options = problem(kind, (*EXTRAS, "dropout"), dtype=torch.float32)
    gradient, threads, results = torch.randn(13, 3, 7), torch.get_num_threads(), []
    try:
        for count in (1, 2, 3, 1):
            torch.set_num_threads(count)
            results.append(with_gradients(sparse_attention, kind, tensors, structure, options, gradient))
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(result, results[0], strict=True))


def test_transpose_on_demand():
    tensors, structure, options = problem("dot")
    calls = []

    def transpose():
        calls.append(1)
        return structure[3:]

    lazy = structure._replace(colptr=transpose, row=None, edge_transposed=None)
    with torch.no_grad():
        call(sparse_attention, "dot", tensors, lazy, options)
    out = call(sparse_attention, "dot", tensors, lazy, options)
    assert not calls
    actual = torch.autograd.grad(out.sum(), list(tensors.values()))
    assert len(calls) == 1
    expected = torch.autograd.grad(
        call(sparse_attention, "dot", tensors, structure, options).sum(), list(tensors.values())
    )
    assert all(torch.equal(x, y) for x, y in zip(actual, expected, strict=True))


@pytest.mark.parametrize("index", [torch.int64, torch.int32])
def test_indices_of_either_width(index):
    structure = random_structure(index=index)
    tensors, structure, options = problem("additive", heads=8, dv=8, structure=structure)
    check_against_composite("additive", tensors, structure, options, 1e-11)
    mixed = structure._replace(rowptr=structure.rowptr.long(), col=structure.col.int())
    check_against_composite("additive", tensors, mixed, options, 1e-11)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_computes_in_float32(dtype):
    tensors, structure, options = problem("dot", ("bias",), dtype=torch.float32)
    half = {name: t.detach().to(dtype).requires_grad_() for name, t in tensors.items()}
    back = {name: t.detach().float().requires_grad_() for name, t in half.items()}
    gradient = torch.randn(13, 3, 7)
    actual = with_gradients(sparse_attention, "dot", half, structure, options, gradient.to(dtype))
    expected = with_gradients(sparse_attention, "dot", back, structure, options, gradient.to(dtype).float())
    assert all(torch.equal(x, y.to(dtype)) for x, y in zip(actual, expected, strict=True))


def flat(kind, tensors, structure, options):
    """The same call as a function of positional tensors."""
    names = list(tensors)

    def function(*values):
        return call(sparse_attention, kind, dict(zip(names, values, strict=True)), structure, options)

    return function, tuple(tensors.values())


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind):
    structure = random_structure(5, 4, 11)
    for extras in ((), (*EXTRAS, "dropout")):
        tensors, _, options = problem(kind, extras, heads=2, dk=2, dv=3, structure=structure)
        function, values = flat(kind, tensors, structure, options)
        assert gradcheck(function, values, fast_mode=True, check_forward_ad=True, check_batched_grad=True)
        assert gradgradcheck(function, values, fast_mode=True)


@pytest.mark.parametrize("kind", KINDS)
def test_forward_mode(kind):
    tensors, structure, options = problem(kind, (*EXTRAS, "dropout"))
    function, values = flat(kind, tensors, structure, options)
    values = tuple(t.detach() for t in values)
    tangents = tuple(torch.randn_like(t) for t in values)

    def composite(*values):
        return call(sparse_composite, kind, dict(zip(tensors, values, strict=True)), structure, options)

    expected = jvp(composite, values, tangents)
    for x, y in zip(jvp(function, values, tangents), expected, strict=True):
        assert torch.allclose(x, y, atol=1e-10)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(t, tangent) for t, tangent in zip(values, tangents, strict=True)]
        assert torch.allclose(forward_ad.unpack_dual(function(*duals)).tangent, expected[1], atol=1e-10)


def test_jacobians_and_hessian():
    structure = random_structure(4, 3, 9)
    tensors, _, options = problem("dot", ("bias",), heads=2, dk=2, dv=2, structure=structure)
    values = {name: t.detach() for name, t in tensors.items()}

    def of(function, q):
        return call(function, "dot", {**values, "q": q}, structure, options)

    expected = jacrev(lambda q: of(sparse_composite, q))(values["q"])
    assert torch.allclose(jacrev(lambda q: of(sparse_attention, q))(values["q"]), expected, atol=1e-11)
    assert torch.allclose(jacfwd(lambda q: of(sparse_attention, q))(values["q"]), expected, atol=1e-11)

    def squares(function):
        return lambda q: of(function, q).square().sum()

    expected = jacrev(jacrev(squares(sparse_composite)))(values["q"])
    for outer in (jacrev, jacfwd):
        actual = outer(jacrev(squares(sparse_attention)))(values["q"])
        assert torch.allclose(actual, expected, atol=1e-10), outer


@pytest.mark.parametrize("kind", KINDS)
def test_vmap(kind):
    """Each tensor batched alone, and all: outputs, per-sample gradients, and gradients through the batch."""
    tensors, structure, options = problem(kind, EXTRAS)
    names = list(tensors)
    single = {name: t.detach() for name, t in tensors.items()}
    batch = {name: torch.stack([t, 2 * t, -t], dim=1).contiguous() for name, t in single.items()}
    gradient = torch.randn(13, 3, 7, dtype=torch.float64)

    def loss(*values):
        return (
            call(sparse_attention, kind, dict(zip(names, values, strict=True)), structure, options) * gradient
        ).sum()

    every = tuple(range(len(names)))
    for batched in (*([name] for name in names), names):
        values = [batch[name] if name in batched else single[name] for name in names]
        dims = tuple(1 if name in batched else None for name in names)
        per_sample = vmap(grad(loss, argnums=every), in_dims=dims)(*values)
        mapped = vmap(loss, in_dims=dims)
        summed = grad(lambda *values: mapped(*values).sum(), argnums=every)(*values)  # noqa: B023
        total = [torch.zeros_like(t) for t in values]
        for n in range(3):
            picked = [t.select(1, n) if d == 1 else t for t, d in zip(values, dims, strict=True)]
            expected = grad(loss, argnums=every)(*picked)
            for place, (x, y) in enumerate(zip(per_sample, expected, strict=True)):
                assert torch.allclose(x[n], y, atol=1e-11), (batched, names[place])
                (total[place].select(1, n) if dims[place] == 1 else total[place]).add_(y)
        for x, y in zip(summed, total, strict=True):
            assert torch.allclose(x, y, atol=1e-10), batched


def test_vmap_over_seeds_equals_a_loop():
    tensors, structure, options = problem("additive", ("dropout",))
    seeds = torch.tensor([[3], [-4], [5]])

    def run(seed):
        return call(sparse_attention, "additive", tensors, structure, options | {"seed": seed})

    expected = torch.stack([run(seed) for seed in seeds])
    assert torch.equal(vmap(run)(seeds), expected)
    same = vmap(lambda v: call(sparse_attention, "additive", {**tensors, "v": v}, structure, options))
    out = same(tensors["v"].expand(3, *tensors["v"].shape))
    assert torch.equal(out[0], out[2])  # one seed, one mask, in every copy


def test_nested_vmap():
    tensors, structure, options = problem("dot", ("dropout",))
    many = torch.randn(2, 3, *tensors["q"].shape, dtype=torch.float64)

    def run(q):
        return call(sparse_attention, "dot", {**tensors, "q": q}, structure, options)

    expected = torch.stack([torch.stack([run(q) for q in row]) for row in many])
    assert torch.allclose(vmap(vmap(run))(many), expected, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_compile(kind):
    for extras in ((), (*EXTRAS, "dropout")):
        tensors, structure, options = problem(kind, extras, heads=8, dv=8)
        compiled = torch.compile(sparse_attention, fullgraph=True, backend="aot_eager")
        gradient = torch.randn(13, 8, 8)
        actual = with_gradients(compiled, kind, tensors, structure, options, gradient)
        expected = with_gradients(sparse_attention, kind, tensors, structure, options, gradient)
        assert all(torch.allclose(x, y, atol=1e-12) for x, y in zip(actual, expected, strict=True))


def test_compile_with_inductor_and_a_lazy_transpose():
    tensors, structure, options = problem("additive", heads=8, dv=8)
    lazy = structure._replace(colptr=lambda: structure[3:], row=None, edge_transposed=None)
    compiled = torch.compile(sparse_attention, fullgraph=True)
    gradient = torch.randn(13, 8, 8)
    actual = with_gradients(compiled, "additive", tensors, lazy, options, gradient)
    expected = with_gradients(sparse_attention, "additive", tensors, structure, options, gradient)
    assert all(torch.allclose(x, y, atol=1e-12) for x, y in zip(actual, expected, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_opcheck(kind):
    for extras, heads, dv in (((), 8, 8), ((*EXTRAS, "dropout"), 3, 7)):
        tensors, structure, options = problem(kind, extras, heads=heads, dv=dv)
        t = {
            name: tensors[name].detach() if name in tensors else None
            for name in ("q", "k", "v", "a", *EXTRAS)
        }
        for name in "qk":
            if t[name] is None:
                t[name] = t["v"].new_empty((13 if name == "q" else 9, heads, 0))
        per_edge = [t[name] for name in EXTRAS]
        rest = (0.2, 2, options.get("dropout", 0.0), options.get("seed"), False)
        inputs = (kind, t["q"], t["k"], t["v"], t["a"], *structure[:3], *per_edge, *rest, True)
        torch.library.opcheck(sparse_operators.forward, inputs)
        saved = sparse_operators.forward(*inputs)
        needs = [x is not None for x in t.values()]
        for needed in (needs, [n and place % 2 == 0 for place, n in enumerate(needs)]):
            torch.library.opcheck(
                sparse_operators.backward,
                (kind, torch.randn_like(saved[0]), t["q"], t["k"], t["v"], t["a"], *structure, *per_edge,
                *rest,
                 *saved, needed),
            )  # fmt: skip


def test_exponential():
    """The kernels' float32 exp, through a softmax over one edge of weight exp(x) beside one of weight 1."""
    x = torch.cat([torch.linspace(-104, 0, 50_001), torch.tensor([-math.inf, -1e30, -0.0])])
    n = len(x)
    structure = structure_of(torch.arange(n).repeat(2), torch.zeros(2 * n, dtype=torch.long), n, 1)
    bias = torch.cat([x, torch.zeros(n)])[:, None]
    value = torch.cat([torch.ones(n), torch.zeros(n)])[:, None, None]
    out = sparse_attention("uniform", None, None, torch.zeros(1, 1, 1), structure, bias=bias, value=value)
    exact = x.double().exp()
    share = out.flatten().double()
    relative = ((share / (1 - share) - exact).abs() / exact)[(x > -15)]
    assert relative[x[x > -15] < -1].max() < 1e-6
    error = (share - exact / (1 + exact)).abs()
    assert (error <= 3e-7 * exact + 1.2e-38).all()  # what float32 cannot hold with all its digits becomes 0
    assert (share[x < -88] == 0).all()


def test_errors_teach():
    tensors, structure, _ = problem("dot")
    q, k, v = (tensors[name] for name in "qkv")
    for arguments, extra, message in [
        (("cosine", q, k, v), {}, "one of additive"),
        (("dot", q[:-1], k, v), {}, "q has shape"),
        (("additive", q, k, v), {}, "one number a head"),
        (("additive_v2", q, k, v), {}, "a is missing"),
        (("dot", q, k, v), {"bias": torch.zeros(3, 1)}, "bias has shape"),
        (("dot", q, k, v), {"dropout": 0.5}, "needs a seed"),
        (("power", q, k, v), {"degree": 0}, "degree is 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            sparse_attention(*arguments, structure, **extra)
    with pytest.raises(NotImplementedError, match="no kernel for"):
        sparse_operators._backend(torch.device("mps"))


def dense_edges(nodes=30, edges=120):
    source, target = torch.randint(0, nodes, (2, edges))
    keep = source != target
    loops = torch.arange(nodes)
    return torch.stack([torch.cat([source[keep], loops]), torch.cat([target[keep], loops])])


def test_parity_with_pyg():
    """Same weights, same outputs and gradients as PyG's GATConv, GATv2Conv and TransformerConv."""
    pyg = pytest.importorskip("torch_geometric.nn")
    edges = dense_edges()
    structure = structure_of(edges[1], edges[0], 30, 30)
    x = torch.randn(30, 6)

    def split(t):
        return t.view(30, 4, 5)

    gat = pyg.GATConv(6, 5, heads=4, add_self_loops=False, bias=False)
    v2 = pyg.GATv2Conv(6, 5, heads=4, add_self_loops=False, bias=False)
    transformer = pyg.TransformerConv(6, 5, heads=4, root_weight=False)

    def our_gat():
        z = split(gat.lin(x))
        q, k = ((z * side).sum(-1, keepdim=True) for side in (gat.att_dst, gat.att_src))
        return sparse_attention("additive", q, k, z, structure)

    def our_v2():
        left, right = split(v2.lin_l(x)), split(v2.lin_r(x))
        return sparse_attention("additive_v2", right, left, left, structure, a=v2.att[0])

    def our_transformer():
        q, k, v = (split(getattr(transformer, f"lin_{name}")(x)) for name in ("query", "key", "value"))
        return sparse_attention("dot", q / math.sqrt(5), k, v, structure)

    gradient = torch.randn(30, 20)
    for layer, ours in ((gat, our_gat), (v2, our_v2), (transformer, our_transformer)):
        parameters = list(layer.parameters())
        expected = functional_call(layer, dict(layer.named_parameters()), (x, edges))
        actual = ours().flatten(1)
        assert torch.allclose(actual, expected, atol=1e-5)
        for mine, theirs in zip(
            torch.autograd.grad(actual, parameters, gradient, allow_unused=True),
            torch.autograd.grad(expected, parameters, gradient, allow_unused=True),
            strict=True,
        ):
            assert (mine is None and theirs is None) or torch.allclose(mine, theirs, atol=1e-4)


def test_flop_counter_counts_both_passes():
    from torch.utils.flop_counter import FlopCounterMode

    heads, dim, edges = 2, 3, 40
    q, k, v = (torch.randn(10, heads, dim, requires_grad=True) for _ in range(3))
    index = torch.randint(10, (2, edges))
    order = (index[1] * 10 + index[0]).argsort()
    rowptr = torch.zeros(11, dtype=torch.int32)
    rowptr[1:] = torch.bincount(index[1], minlength=10).cumsum(0)
    structure = Structure(rowptr, index[0][order].int(), order.int())
    with FlopCounterMode(display=False) as counter:
        out = sparse_attention("dot", q, k, v, structure)
    assert counter.get_total_flops() == edges * heads * (2 * dim + 2 * dim)
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    assert counter.get_total_flops() == edges * heads * 2 * (2 * dim + 2 * dim) + edges * heads * 4 * dim
