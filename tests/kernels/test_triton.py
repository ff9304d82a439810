"""Triton's kernels against the composite: compiled where there is a GPU, else interpreted, at small sizes."""

import math
import subprocess
import sys

import pytest
import torch

from heedful import Additive, Graph, Polynomial, Softmax, Uniform, attend
from heedful.graphs.structure import Structure as Slots
from heedful.kernels import propagate as kernels
from heedful.kernels import sparse_operators
from heedful.kernels.gat_packed import apart, packed_attention
from heedful.kernels.sparse import KINDS, Structure, sparse_attention, sparse_composite
from heedful.kernels.sparse_operators import build_transpose
from heedful.nn import GATConv

pytest.importorskip("triton")
EXTRAS = ("bias", "weight", "key", "value")
CASES = [(), EXTRAS, (*EXTRAS, "dropout")]


@pytest.fixture
def device(device, monkeypatch):
    if device == "cpu":
        for module in (sparse_operators, kernels):
            monkeypatch.setattr(module, "on_gpu", lambda device: True)
    return device


@pytest.fixture
def hubs(monkeypatch):
    """Every row of more than seven edges is cut up."""
    from heedful.kernels import sparse_triton

    monkeypatch.setattr(sparse_triton, "split_of", lambda edges: 7)


def structure_of(listener, speaker, listeners, speakers, index=torch.int32):
    order = torch.argsort(listener, stable=True)
    rowptr = torch.zeros(listeners + 1, dtype=index, device=listener.device)
    rowptr[1:] = torch.bincount(listener, minlength=listeners).cumsum(0)
    csr = rowptr, speaker[order].to(index), order.to(index)
    return Structure(*csr, *build_transpose(*csr, speakers))


def random_structure(device, listeners=9, speakers=7, edges=50, index=torch.int32):
    """Duplicates, a listener and a speaker that have a third of the edges, and listeners without any."""
    listener, speaker = torch.randint(listeners - 2, (edges,)), torch.randint(speakers, (edges,))
    listener[: edges // 3], speaker[edges // 3 : 2 * edges // 3] = 1, speakers // 2
    return structure_of(listener.to(device), speaker.to(device), listeners, speakers, index)


def problem(
    kind,
    device,
    extras=(),
    heads=2,
    dk=3,
    dv=4,
    dtype=torch.float64,
    shared=("bias", "value"),
    structure=None,
):
    structure = structure or random_structure(device)
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
    tensors = {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
    if "weight" in tensors:  # zeros, but no sum near 0, where rounding is amplified without bound
        tensors["weight"] = tensors["weight"].abs() + 0.1
        tensors["weight"][::5] = 0
    if kind == "power":
        tensors["q"], tensors["k"] = (torch.nn.functional.normalize(tensors[name], dim=-1) for name in "qk")
    options = {"dropout": 0.4, "seed": torch.tensor([1234], device=device)} if "dropout" in extras else {}
    return {name: t.to(device, dtype).requires_grad_() for name, t in tensors.items()}, structure, options


def call(function, kind, tensors, structure, options):
    extras = {name: t for name, t in tensors.items() if name not in ("q", "k", "v")}
    return function(kind, tensors.get("q"), tensors.get("k"), tensors["v"], structure, **extras, **options)


def with_gradients(function, kind, tensors, structure, options, gradient):
    out = call(function, kind, tensors, structure, options)
    return [out, *torch.autograd.grad(out, list(tensors.values()), gradient.to(out))]


def check(kind, tensors, structure, options, tolerance):
    """Forward and every gradient, the composite's in float64.

    What goes through the scores is a sum of differences of numbers as large as g·v, which may cancel, so its
    error is measured by those.
    """
    exact = {name: t.detach().double().requires_grad_() for name, t in tensors.items()}
    v = exact["v"]
    gradient = torch.randn(len(structure.rowptr) - 1, *v.shape[1:], dtype=v.dtype, device=v.device)
    expected = with_gradients(sparse_composite, kind, exact, structure, options, gradient)
    actual = with_gradients(sparse_attention, kind, tensors, structure, options, gradient)
    least = (gradient.norm() * v.norm() / v.numel() ** 0.5).item()
    for name, x, y in zip(("out", *tensors), actual, expected, strict=True):
        assert x.dtype == tensors["v"].dtype and x.shape == y.shape
        error = (x.double() - y).norm() / y.norm().clamp(min=0 if name in ("out", "v", "value") else least)
        assert error <= tolerance, f"{name}: {error}"  # not for NaN either


@pytest.mark.parametrize("extras", [("weight",), (*EXTRAS, "dropout")], ids="+".join)
@pytest.mark.parametrize("kind", ["power", "dot"])
def test_one_speaker_is_heard_whatever_its_score(kind, extras, device):
    """A softmax over one edge is 1: scores and weights have gradients of 0, though a score near 0 divides."""
    alone = torch.arange(9, device=device)
    given = {"dtype": torch.float32, "structure": structure_of(alone, alone, 9, 9)}
    tensors, structure, options = problem(kind, device, extras, **given)
    tensors |= {name: (1e-4 * tensors[name].detach()).requires_grad_() for name in ("q", "weight")}
    gradient = torch.randn(9, 2, 4, device=device)
    results = with_gradients(sparse_attention, kind, tensors, structure, options, gradient)
    for name, x in zip(("out", *tensors), results, strict=True):
        assert (x == 0).all() == (name not in ("out", "v", "value")), name


@pytest.mark.parametrize("extras", CASES, ids=["plain", "extras", "dropout"])
@pytest.mark.parametrize("kind", KINDS)
def test_against_the_composite(seed, kind, extras, device):
    for shared in (("bias", "value"), ("weight", "key")) if extras else ((),):
        check(kind, *problem(kind, device, extras, shared=shared), 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_hubs(seed, kind, device, hubs):
    """Cut up and put together again, the longest rows in the first, a middle and the last place."""
    for extras in ((), ("dropout",)):
        check(kind, *problem(kind, device, extras), 1e-12)
    for hub in (0, 4):
        ends = torch.randint(5, (2, 40), device=device)
        ends[:, :25] = hub
        check(kind, *problem(kind, device, structure=structure_of(ends[0], ends[1], 5, 5)), 1e-12)


@pytest.mark.parametrize(("heads", "dk", "dv"), [(1, 1, 1), (3, 5, 33), (8, 8, 8), (1, 3, 300), (300, 2, 1)])
@pytest.mark.parametrize("kind", ["additive", "dot"])
def test_any_shape(seed, kind, heads, dk, dv, device):
    """Heads and features that are no powers of two, and more than one program takes."""
    structure = random_structure(device, 4, 3, 20)
    check(kind, *problem(kind, device, (), heads, dk, dv, structure=structure), 1e-12)
    if heads == 300:
        shared = EXTRAS if kind == "dot" else ("bias",)
        check(kind, *problem(kind, device, shared, heads, dk, dv, structure=structure, shared=shared), 1e-12)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2), (torch.float16, 2.5e-3)]
)
@pytest.mark.parametrize("kind", ["additive", "additive_v2", "dot", "uniform"])
def test_precisions(seed, kind, dtype, tolerance, device):
    """Half precision is read as it is and summed in float32."""
    for extras in ((), ("bias", "value")):
        check(kind, *problem(kind, device, extras, dtype=dtype), tolerance)


def test_a_plain_mean_is_a_sum(seed, device, monkeypatch):
    """Some listeners hear nobody, others somebody twice."""
    from heedful.attention.strategies import sparse

    if device == "cpu":
        monkeypatch.setattr(sparse, "on_gpu", lambda device: True)
    sums = []
    monkeypatch.setattr(Graph, "propagate", lambda *call, run=Graph.propagate: sums.append(0) or run(*call))
    structure = random_structure(device, listeners=9, speakers=9, edges=30)
    listener = torch.arange(9, device=device).repeat_interleave(structure.rowptr.diff().long())
    graph = Graph.from_edges(structure.col.long(), listener, nodes=9)
    q, v = torch.randn(2, 2, 3, 9, 5, device=device, dtype=torch.float64).unbind()
    v, gradient = v.requires_grad_(), torch.randn_like(v)
    found, wanted = (
        torch.autograd.grad(
            out := attend(q, q, v, similarity=Uniform(), neighbors=graph, strategy=way), v, gradient
        )
        + (out,)
        for way in ("sparse", "reference")
    )
    assert len(sums) == 1
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("implied", [False, True])
@pytest.mark.parametrize("kind", ["additive", "dot"])
def test_drops_what_the_cpu_drops(seed, kind, implied, device, monkeypatch):
    tensors, structure, options = problem(kind, device, ("dropout",))
    options |= {"implied": implied, "seed": torch.randint(-(2**62), 2**62, (1,)).to(device)}
    actual = call(sparse_attention, kind, tensors, structure, options)
    monkeypatch.setattr(sparse_operators, "on_gpu", lambda device: device.type == "cuda")
    tensors, options = (
        {name: t.cpu() for name, t in tensors.items()},
        options | {"seed": options["seed"].cpu()},
    )
    expected = call(sparse_attention, kind, tensors, Structure(*(t.cpu() for t in structure)), options)
    assert torch.allclose(actual.cpu(), expected, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_to_hear(seed, kind, device):
    """No edges at all; every weight 0; every edge silenced: 0, and gradients of 0, never NaN."""
    nobody = torch.zeros(0, dtype=torch.long, device=device)
    tensors, structure, options = problem(kind, device, EXTRAS, structure=structure_of(nobody, nobody, 3, 2))
    ones = torch.ones(3, 2, 4, device=device)
    assert all(
        (x == 0).all() for x in with_gradients(sparse_attention, kind, tensors, structure, options, ones)
    )
    for name, number in (("weight", 0.0), ("bias", -math.inf)):
        tensors, structure, options = problem(kind, device, EXTRAS, shared=())
        silent = tensors[name].detach().clone()
        silent[structure.edge[structure.rowptr[1] : structure.rowptr[2]].long()] = number
        tensors[name] = silent.requires_grad_()
        gradient = torch.zeros(9, 2, 4, device=device)
        gradient[1] = 1
        results = with_gradients(sparse_attention, kind, tensors, structure, options, gradient)
        assert (results[0][1] == 0).all()
        assert all((x == 0).all() for x in results[1:])


def test_nan_comes_out_where_it_went_in(seed, device):
    for kind in ("additive", "dot"):
        tensors, structure, options = problem(kind, device, dtype=torch.float32)
        with torch.no_grad():
            tensors["k"][3] = math.nan
        out, expected = (
            call(f, kind, tensors, structure, options) for f in (sparse_attention, sparse_composite)
        )
        assert torch.equal(out.isnan(), expected.isnan()) and out.isnan().any() and not out.isnan().all()


@pytest.mark.parametrize("kind", ["additive", "dot", "additive_v2"])
def test_any_scale(seed, kind, device):
    for scale in (1e-6, 1e2, 1e4):
        tensors, structure, options = problem(kind, device, dtype=torch.float32)
        tensors = {name: (t.detach() * scale).requires_grad_() for name, t in tensors.items()}
        ones = torch.ones(9, 2, 4, device=device)
        for x in with_gradients(sparse_attention, kind, tensors, structure, options, ones):
            assert torch.isfinite(x).all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_written_and_always_the_same(seed, kind, device, hubs, monkeypatch):
    """With fresh memory full of NaN nothing of it comes out, and every run gives the same bits."""
    new_empty, empty_like = torch.Tensor.new_empty, torch.empty_like

    def poisoned(function):
        def make(*arguments, **options):
            made = function(*arguments, **options)
            return made.fill_(math.nan if made.is_floating_point() else 2**30)

        return make

    for extras in ((), (*EXTRAS, "dropout")):
        tensors, structure, options = problem(kind, device, extras, dtype=torch.float32)
        gradient = torch.randn(9, 2, 4, device=device)
        clean = with_gradients(sparse_attention, kind, tensors, structure, options, gradient)
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, "new_empty", poisoned(new_empty))
            patch.setattr(torch, "empty_like", poisoned(empty_like))
            dirty = with_gradients(sparse_attention, kind, tensors, structure, options, gradient)
        assert all(torch.equal(x, y) for x, y in zip(clean, dirty, strict=True))


@pytest.mark.parametrize("kind", ["additive", "dot", "uniform"])
def test_only_what_is_asked_for(seed, kind, device, hubs):
    tensors, structure, options = problem(kind, device, ("bias", "value"))
    gradient = torch.randn(9, 2, 4, device=device, dtype=torch.float64)
    expected = with_gradients(sparse_attention, kind, tensors, structure, options, gradient)[1:]
    for only, everything in zip(tensors, expected, strict=True):
        some = {name: t.detach().requires_grad_(name == only) for name, t in tensors.items()}
        out = call(sparse_attention, kind, some, structure._replace(colptr=None), options)
        # Compiled for other outputs, the same sum may be contracted elsewhere.
        assert torch.allclose(torch.autograd.grad(out, some[only], gradient)[0], everything, 1e-12, 1e-12)


def test_indices_and_offsets_of_64_bits(seed, device, hubs, monkeypatch):
    from heedful.kernels import sparse_triton

    monkeypatch.setattr(sparse_triton, "NARROW", 0)
    structure = random_structure(device, index=torch.int64)
    for kind in ("additive", "dot"):
        check(kind, *problem(kind, device, EXTRAS, structure=structure), 1e-12)
    check("additive", *problem("additive", device, structure=structure), 1e-12)


def test_backward_twice_and_of_backward(seed, device):
    tensors, structure, options = problem("additive", device)
    out = call(sparse_attention, "additive", tensors, structure, options)
    values = list(tensors.values())
    first = torch.autograd.grad(out.square().sum(), values, retain_graph=True)
    again = torch.autograd.grad(out.square().sum(), values, create_graph=True)
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    second = torch.autograd.grad(sum(x.square().sum() for x in again), values)
    out = call(sparse_composite, "additive", tensors, structure, options)
    again = torch.autograd.grad(out.square().sum(), values, create_graph=True)
    expected = torch.autograd.grad(sum(x.square().sum() for x in again), values)
    assert all(torch.allclose(x, y, atol=1e-9) for x, y in zip(second, expected, strict=True))


@pytest.mark.parametrize(("heads", "features"), [(1, 1), (3, 5), (1, 300), (8, 8)])
@pytest.mark.parametrize("weighted", [True, False])
def test_propagate(seed, heads, features, weighted, device, hubs, monkeypatch):
    """The weighted sum, both its gradients, and theirs."""
    source, target = torch.randint(7, (40,), device=device), torch.randint(9, (40,), device=device)
    source[:15], target[10:25] = 2, 3
    slots = Slots.from_edges(source, target, 7, 11)
    x = torch.randn(7, heads, features, dtype=torch.float64, device=device, requires_grad=True)
    weight = (
        torch.randn(40, heads, dtype=torch.float64, device=device, requires_grad=True) if weighted else None
    )
    inputs, gradient = (
        [x, weight] if weighted else [x],
        torch.randn(11, heads, features, device=device).double(),
    )

    def both():
        out = kernels.propagate(*slots.forward, *slots.backward, x, weight)
        return [out, *torch.autograd.grad(out, inputs, gradient)]

    actual = both()
    heard = x[source] * (1 if weight is None else weight.unsqueeze(-1))
    out = torch.zeros_like(gradient).index_add(0, target, heard)
    expected = [out, *torch.autograd.grad(out, inputs, gradient)]
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(actual, expected, strict=True))
    if features > 1 and weighted:
        x = x.detach().bfloat16()
        weight = weight.detach().bfloat16()
        low = kernels.propagate(*slots.forward, *slots.backward, x, weight)
        exact = torch.zeros_like(gradient).index_add(
            0, target, x.double()[source] * weight.double().unsqueeze(-1)
        )
        assert low.dtype == torch.bfloat16
        assert (low.double() - exact).norm() <= 1e-2 * exact.norm()


@pytest.mark.parametrize(("heads", "dim", "dropout", "biased"), [(2, 4, 0.0, True), (3, 5, 0.4, False)])
def test_side_by_side(seed, heads, dim, dropout, biased, device, hubs):
    """[v | q | k] in one table gives what they give apart, to the second derivative."""
    structure = random_structure(device, 7, 7, 30)
    table = torch.randn(7, heads * (dim + 2), device=device).double().requires_grad_()
    bias = torch.randn(heads * dim, device=device).double().requires_grad_() if biased else None
    seeds = torch.tensor([seed], device=device) if dropout else None
    gradient = torch.randn(7, heads * dim, device=device).double()
    inputs = [table, bias] if biased else [table]
    results = []
    for out in (
        packed_attention(table, heads, structure, bias=bias, dropout=dropout, seed=seeds),
        apart(table, heads, structure, bias, 0.2, dropout, seeds),
    ):
        found = [out, *torch.autograd.grad(out, inputs, gradient, retain_graph=True)]
        if biased:
            (again,) = torch.autograd.grad(out.square().sum(), [table], create_graph=True)
            found += torch.autograd.grad(again.square().sum(), inputs)
        results.append(found)
    for x, y in zip(*results, strict=True):
        assert torch.allclose(x, y, atol=1e-9 * y.abs().max().item())


def test_gradients_lie_where_numbers_were_kept(seed, device, hubs):
    """Unless the graph is kept: then they can be taken again, and are the same bits."""
    structure = random_structure(device, 9, 9, 60)
    table = torch.randn(9, 3 * 6, device=device, requires_grad=True)
    gradient = torch.randn(9, 3 * 4, device=device)
    out = packed_attention(table, 3, structure)
    kept = out.grad_fn.saved_tensors[-1]
    before = kept.clone()
    again = [torch.autograd.grad(out, table, gradient, retain_graph=True)[0] for _ in range(2)]
    assert torch.equal(kept, before)
    (last,) = torch.autograd.grad(out, table, gradient)
    assert last.data_ptr() == kept.data_ptr()
    assert all(torch.equal(last, found) and found.data_ptr() != kept.data_ptr() for found in again)


def test_side_by_side_in_half_precision(seed, device):
    structure = random_structure(device, 9, 9, 60)
    table = torch.randn(9, 2 * 10, device=device).bfloat16().requires_grad_()
    bias, gradient = torch.randn(16, device=device).bfloat16(), torch.randn(9, 16, device=device)
    out = packed_attention(table, 2, structure, bias=bias)
    (actual,) = torch.autograd.grad(out, table, gradient.bfloat16())
    exact = table.detach().double().requires_grad_()
    expected = apart(exact, 2, structure, bias.double(), 0.2, 0.0, None)
    (wanted,) = torch.autograd.grad(expected, exact, gradient.bfloat16().double())
    assert (out.double() - expected).norm() <= 1e-2 * expected.norm()
    assert (actual.double() - wanted).norm() <= 2e-2 * gradient.norm() * table.std().item()


@pytest.mark.parametrize(("heads", "dim", "programs"), [(2, 64, 3), (1, 50, 2), (5, 40, 1)])
def test_the_gradient_of_a_bias_is_summed_on_the_way(seed, heads, dim, programs, device, monkeypatch):
    """By many programs or few, whatever the shape; always the same bits."""
    from heedful.kernels import sparse_triton

    monkeypatch.setattr(sparse_triton, "PROGRAMS", programs)
    nodes = 36
    structure = random_structure(device, nodes, nodes, 40)
    table = torch.randn(nodes, heads * (dim + 2), device=device).requires_grad_()
    bias = torch.randn(heads * dim, device=device).requires_grad_()
    gradient = torch.randn(nodes, heads * dim, device=device)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
        inputs = [t.detach().to(dtype).requires_grad_() for t in (table, bias)]
        out = packed_attention(inputs[0], heads, structure, bias=inputs[1])
        found = [torch.autograd.grad(out, inputs, gradient.to(dtype), retain_graph=True) for _ in range(2)]
        (alone,) = torch.autograd.grad(out, inputs[1], gradient.to(dtype), retain_graph=True)
        expected = gradient.to(dtype).double().sum(0)
        for d_bias in (found[0][1], alone):
            assert d_bias.dtype == dtype and (d_bias - expected).norm() <= tolerance * expected.norm()
        assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))


@pytest.mark.parametrize("options", [{}, {"concat": False}, {"shared": True, "bias": False}], ids=str)
def test_a_layer_by_one_product(seed, options, device):
    """GATConv packs on the GPU; its results are those of the layer that does not."""
    ends = torch.randint(12, (2, 50), device=device)
    graph = Graph.from_edges(*ends, nodes=12)
    layer = GATConv(6, 4, 3, **options).to(device, torch.float64)
    x = torch.randn(12, 6, device=device, dtype=torch.float64, requires_grad=True)
    assert layer._packs(x, graph)
    results = []
    for packs in (True, False):
        layer._packs = lambda x, graph, packs=packs: packs
        out = layer(x, graph)
        results.append([out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])])
    assert all(torch.allclose(a, b, atol=1e-9) for a, b in zip(*results, strict=True))


def test_imported_only_when_needed():
    code = "import sys, heedful.nn; assert not [name for name in sys.modules if name.endswith('_triton')]"
    subprocess.run([sys.executable, "-c", code], check=True)


# What only a GPU can show.


@pytest.mark.gpu
@pytest.mark.parametrize(
    "similarity",
    [Additive(0.2), Additive(0.2, weight=torch.randn(8)), Softmax(), Polynomial(2), Uniform()],
    ids=str,
)
def test_attend_as_on_the_cpu(seed, similarity):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    dim = 1 if isinstance(similarity, Additive) and similarity.weight is None else 8
    source, target = torch.randint(1000, (2, 20_000))
    target[:3000] = 17
    graph = Graph.from_edges(source, target, nodes=1000)
    query, key, value = (torch.randn(4, 1000, n) for n in (dim, dim, 16))
    gradient = torch.randn(4, 1000, 16)
    results = []
    for device in ("cpu", "cuda"):
        inputs = [t.to(device).requires_grad_() for t in (query, key, value)]
        if getattr(similarity, "weight", None) is not None:
            similarity = Additive(0.2, weight=similarity.weight.to(device))
        torch.manual_seed(seed)
        out = attend(*inputs, similarity=similarity, neighbors=graph.to(device), strategy="sparse")
        wanted = inputs[2:] if isinstance(similarity, Uniform) else inputs
        results.append([out, *torch.autograd.grad(out, wanted, gradient.to(device))])
    for x, y in zip(*results, strict=True):
        assert (x - y.cpu()).norm() <= 1e-5 * x.norm()


@pytest.mark.gpu
def test_compiled_captured_and_checked(seed):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    tensors, structure, _options = problem("additive", "cuda", dtype=torch.float32)
    q, k, v = tensors.values()

    def function(q, k, v):
        return sparse_attention("additive", q, k, v, structure)

    out = function(q, k, v)
    expected = torch.autograd.grad(out.square().sum(), (q, k, v))
    compiled = torch.compile(function, fullgraph=True)(q, k, v)
    assert torch.equal(out, compiled)
    for x, y in zip(expected, torch.autograd.grad(compiled.square().sum(), (q, k, v)), strict=True):
        assert torch.equal(x, y)
    static = v.detach().clone()
    captured = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(captured):
        result = function(q, k, static)
    static.copy_(2 * v.detach())
    captured.replay()
    assert torch.allclose(result, 2 * out)
    arguments = (
        "additive", q.detach(), k.detach(), v.detach(), None, *structure[:3], None, None, None, None,
        0.2, 2, 0.0, None, False, True,
    )  # fmt: skip
    torch.library.opcheck(sparse_operators.forward, arguments, test_utils=("test_schema", "test_faketensor"))
