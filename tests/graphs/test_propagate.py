"""propagate against dense torch, scipy and PyG; gradients of every mode; shapes, dtypes and refusals."""

import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck
from torch_geometric.nn import GCNConv, SAGEConv

from heedful.graphs import Graph


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_equals_the_dense_product(data):
    targets, sources, features = (data.draw(st.integers(0, 7)) for _ in range(3))
    edges = data.draw(st.integers(0, 40)) if targets and sources else 0
    torch.manual_seed(data.draw(st.integers(0, 2**31)))
    source, target = (torch.randint(0, max(n, 1), (edges,)) for n in (sources, targets))
    shape = data.draw(st.sampled_from([None, (), (3,), (1,), (2, 3), (2, 1)]))
    lead = data.draw(st.sampled_from([(), (3,), (2, 3), (4, 2, 3)]))
    weight = None if shape is None else torch.randn(*shape, edges, dtype=torch.float64)
    graph = Graph.from_edges(source, target, sources=sources, targets=targets, weight=weight)
    x = torch.randn(*lead, sources, features, dtype=torch.float64)
    out = graph.propagate(x)
    expected = graph.to_dense().double() @ x
    assert out.shape == expected.shape
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("features", [1, 3, 16, 67])
def test_equals_scipy(seed, features):
    source, target = torch.randint(0, 50, (700,)), torch.randint(0, 40, (700,))
    graph = Graph.from_edges(source, target, sources=50, targets=40, weight=torch.randn(700))
    x = torch.randn(50, features)
    torch.testing.assert_close(
        graph.propagate(x), torch.from_numpy(graph.to_scipy() @ x.numpy()), atol=1e-4, rtol=1e-4
    )
    plain = scipy.sparse.csr_array(graph.with_edges(weight=None).to_scipy())
    torch.testing.assert_close(
        graph.with_edges(weight=None).propagate(x), torch.from_numpy(plain @ x.numpy()), atol=1e-4, rtol=1e-4
    )


def test_equals_gcn_and_sage(tangled):
    """PyG's layers, weights and gradients included."""
    graph = tangled.with_edges(weight=tangled.weight.float()).coalesce()
    x = torch.randn(10, 5)
    theirs = GCNConv(5, 4, bias=False)
    ours = graph.with_self_loops().normalized().propagate(theirs.lin(x))
    expected = theirs(x, graph.to_edge_index(), graph.weight)
    torch.testing.assert_close(ours, expected)
    by_ours, by_theirs = (torch.autograd.grad(o.square().sum(), theirs.lin.weight) for o in (ours, expected))
    torch.testing.assert_close(by_ours, by_theirs)
    sage = SAGEConv(5, 4)
    plain = tangled.with_edges(weight=None)
    ours = sage.lin_l(plain.aggregate(x, "mean")) + sage.lin_r(x)
    torch.testing.assert_close(ours, sage(x, plain.to_edge_index()))


@pytest.mark.parametrize("heads", [(), (2,)])
@pytest.mark.parametrize("lead", [(2,), (3, 2)])
def test_every_derivative(tangled, heads, lead):
    weight = torch.randn(*heads, 30, dtype=torch.float64, requires_grad=True)
    x = torch.randn(*lead, 10, 3, dtype=torch.float64, requires_grad=True)

    def both(x, weight):
        return tangled.with_edges(weight=weight).propagate(x)

    assert gradcheck(
        both, (x, weight), check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )
    assert gradgradcheck(both, (x, weight), check_fwd_over_rev=True, check_batched_grad=True)
    assert gradcheck(tangled.with_edges(weight=None).propagate, x, check_forward_ad=True)
    assert gradcheck(lambda w: both(x.detach(), w), weight, check_forward_ad=True)


def test_vmap_over_nodes_weights_and_both(tangled):
    x, weight = torch.randn(4, 10, 3), torch.rand(4, 30)

    def both(x, weight):
        return tangled.with_edges(weight=weight).propagate(x)

    for dims in [(0, 0), (0, None), (None, 0)]:
        out = torch.vmap(both, dims)(x if dims[0] == 0 else x[0], weight if dims[1] == 0 else weight[0])
        for k in range(4):
            torch.testing.assert_close(
                out[k], both(x[k if dims[0] == 0 else 0], weight[k if dims[1] == 0 else 0])
            )
    per_sample = torch.vmap(torch.func.grad(lambda w, x: both(x, w).square().sum()), (0, 0))(weight, x)
    for k in range(4):
        w = weight[k].clone().requires_grad_()
        both(x[k], w).square().sum().backward()
        torch.testing.assert_close(per_sample[k], w.grad)


def test_compiles_whole(seed):
    """The transpose does not exist yet when the compiler looks."""
    graph = Graph.from_edge_index(torch.randint(0, 10, (2, 30)), nodes=10)
    x, weight = torch.randn(2, 10, 3, requires_grad=True), torch.rand(2, 30, requires_grad=True)

    def loss(x, weight):
        return graph.with_edges(weight=weight).propagate(x).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    by_compiled = torch.autograd.grad(compiled(x, weight), (x, weight))
    torch.testing.assert_close(by_compiled, torch.autograd.grad(loss(x, weight), (x, weight)))


@pytest.mark.parametrize("transform", ["vmap", "grad", "grad of copies", "jacrev", "jvp", "hessian"])
def test_function_transforms_compile(transform, seed):
    """The graph is new to each call: what it learns of itself there must not outlive the transform."""
    ends = torch.randint(0, 10, (2, 30))
    x, weight = torch.randn(2, 10, 3), torch.rand(2, 30)

    def function():
        graph = Graph.from_edge_index(ends, nodes=10)
        hear = lambda x, weight: graph.with_edges(weight=weight).propagate(x)  # noqa: E731
        loss = lambda *both: hear(*both).pow(3).sum()  # noqa: E731
        return {
            "vmap": torch.func.vmap(hear),
            "grad": torch.func.grad(loss, (0, 1)),
            "grad of copies": torch.func.vmap(torch.func.grad(loss, (0, 1))),
            "jacrev": torch.func.jacrev(hear),
            "jvp": lambda *both: torch.func.jvp(hear, both, tuple(t.cos() for t in both)),
            "hessian": torch.func.hessian(loss),
        }[transform]

    # Tangents of views break the tracing of torch itself.
    given = (x, weight) if transform in ("vmap", "grad of copies") else (x[0].clone(), weight[0].clone())
    torch._dynamo.reset()
    found = torch.compile(function(), fullgraph=True, backend="aot_eager")(*given)
    torch.testing.assert_close(found, function()(*given), rtol=1e-4, atol=1e-5)


def test_hears_only_neighbours(tangled):
    """Nothing a node does not listen to may change what it gets, not even NaN."""
    x = torch.randn(10, 4, dtype=torch.float64)
    out = tangled.propagate(x)
    heard = tangled.with_edges(weight=None).to_dense() > 0
    for node in range(10):
        noise = torch.where(heard[node, :, None], x, torch.nan)
        assert torch.equal(tangled.propagate(noise)[node], out[node])
    assert (out[tangled.degree() == 0] == 0).all()


def test_nan_and_infinity_pass_through():
    graph = Graph.from_edges([0, 1, 2, 3, 4, 0], [0, 0, 0, 0, 0, 1], nodes=5)
    x = torch.tensor([[1.0], [torch.inf], [-torch.inf], [2.0], [3.0]])
    out = graph.propagate(x)
    assert out[0].isnan() and out[1] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_sums_in_float(seed, dtype):
    graph = Graph.from_edges(torch.arange(1, 4097), torch.zeros(4096, dtype=int), nodes=4097)
    x = torch.full((4097, 2), 0.01, dtype=dtype, requires_grad=True)
    out = graph.propagate(x)
    assert out.dtype == dtype
    torch.testing.assert_close(out[0], (4096 * x[1].double()).to(dtype), rtol=1e-2, atol=0)
    out.sum().backward()
    assert x.grad.dtype == dtype and (x.grad[1:] == 1).all()
    weight = torch.rand(4096, requires_grad=True)
    assert graph.with_edges(weight=weight).propagate(x).dtype == torch.float32


def test_many_threads_give_the_same_bits(seed):
    graph = Graph.from_edge_index(torch.randint(0, 500, (2, 9000)), nodes=500, weight=torch.rand(9000))
    x = torch.randn(500, 32, requires_grad=True)
    threads = torch.get_num_threads()
    results = []
    for count in (1, 3):
        torch.set_num_threads(count)
        out = graph.propagate(x)
        results.append((out.detach(), *torch.autograd.grad(out.square().sum(), x)))
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_no_gradient_no_transpose(seed):
    graph = Graph.from_edge_index(torch.randint(0, 5, (2, 9)), nodes=5)
    with torch.no_grad():
        graph.propagate(torch.randn(5, 2))
    assert graph.structure._backward is None


def test_no_tensor_of_edges_times_features(seed):
    """Neither forward nor backward allocates as much as one number per edge and feature."""
    edges, features = 2000, 50
    graph = Graph.from_edge_index(torch.randint(0, 20, (2, edges)), nodes=20)
    x = torch.randn(20, features, requires_grad=True)
    weight = torch.rand(edges, requires_grad=True)
    graph.with_edges(weight=weight).propagate(x).sum().backward()  # builds the transpose, compiles
    largest = 0
    with torch.profiler.profile(
        profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]
    ) as profile:
        graph.with_edges(weight=weight).propagate(x).sum().backward()
    largest = max(abs(e.self_cpu_memory_usage) for e in profile.events())
    assert 0 < largest < edges * features * 4 / 4


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.ones(9, 2), ValueError, r"x has shape \(9, 2\), but the graph has 10 speaking nodes"),
        (torch.ones(10), ValueError, r"x has shape \(10,\)"),
        (torch.ones(10, 2, dtype=torch.int64), TypeError, "floating point tensor, got torch.int64"),
        ([[1.0]], TypeError, "got list"),
        (torch.ones(10, 2, device="meta"), ValueError, "x is on meta, the graph on cpu"),
    ],
)
def test_wrong_x_is_named(tangled, x, error, message):
    with pytest.raises(error, match=message):
        tangled.propagate(x)
    with pytest.raises(error, match=message):
        tangled.aggregate(x, "max")


def test_heads_that_do_not_fit_are_named(tangled):
    with pytest.raises(ValueError, match=r"x has shape \(2, 10, 4\) and weight \(3, 30\)"):
        tangled.with_edges(weight=torch.ones(3, 30)).propagate(torch.ones(2, 10, 4))


def test_nothing_to_sum():
    x = torch.ones(3, 2, requires_grad=True)
    out = Graph.empty(3).propagate(x)
    assert torch.equal(out, torch.zeros(3, 2))
    out.sum().backward()
    assert torch.equal(x.grad, torch.zeros(3, 2))
    assert Graph.empty(0).propagate(torch.ones(0, 4)).shape == (0, 4)
    assert Graph.complete(3).propagate(torch.ones(5, 3, 0)).shape == (5, 3, 0)
