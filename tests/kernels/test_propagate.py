"""The operators under `propagate`: torch's own checks, other index types, FLOP counts, and the plain twin."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from heedful import Graph
from heedful.kernels import propagate as kernels

INDEX = [torch.int32, torch.int64]


def ring(index=torch.int32):
    """Node i hears i − 1 and i − 2 (mod 5); node 5 hears nobody. Edge numbers run backwards."""
    rowptr = torch.tensor([0, 2, 4, 6, 8, 10, 10], dtype=index)
    col = torch.tensor([3, 4, 0, 4, 0, 1, 1, 2, 2, 3], dtype=index)
    edge = torch.arange(9, -1, -1, dtype=index)
    row = torch.tensor([1, 2, 2, 3, 3, 4, 0, 4, 0, 1], dtype=index)
    colptr = torch.tensor([0, 2, 4, 6, 8, 10, 10], dtype=index)
    slot = {(int(col[s]), i): s for i in range(6) for s in range(int(rowptr[i]), int(rowptr[i + 1]))}
    pairs = [(j, int(row[s])) for j in range(6) for s in range(int(colptr[j]), int(colptr[j + 1]))]
    return rowptr, col, edge, colptr, row, edge[[slot[p] for p in pairs]]


@pytest.fixture
def inputs(seed):
    x = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    g = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    return x, torch.randn(10, 2, dtype=torch.float64, requires_grad=True), g


@pytest.mark.parametrize("index", INDEX)
def test_operators_pass_opcheck(inputs, index):
    x, weight, g = inputs
    for w in (weight, weight.detach(), None):
        torch.library.opcheck(kernels._propagate, (*ring(index), x, w))
    torch.library.opcheck(kernels._propagate, (*ring(index), x.detach(), weight))
    torch.library.opcheck(kernels._edge_dot, (*ring(index), g, x))


@pytest.mark.parametrize("index", INDEX)
def test_edge_dot_is_the_dot_over_each_edge(inputs, index):
    x, _, g = inputs
    rowptr, col, edge, *_ = ring(index)
    out = kernels.edge_dot(*ring(index), g, x)
    for i in range(6):
        for s in range(int(rowptr[i]), int(rowptr[i + 1])):
            torch.testing.assert_close(out[edge[s]], (g[i] * x[col[s]]).sum(-1))


def test_edge_dot_has_every_derivative(inputs):
    x, _, g = inputs

    def dot(g, x):
        return kernels.edge_dot(*ring(), g, x)

    assert torch.autograd.gradcheck(dot, (g, x), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(dot, (g, x), check_fwd_over_rev=True)
    many = torch.randn(4, 6, 2, 3, dtype=torch.float64)
    for dims in [(0, None), (None, 0), (0, 0)]:
        out = torch.vmap(dot, dims)(many if dims[0] == 0 else g, many if dims[1] == 0 else x)
        torch.testing.assert_close(
            out[2], dot(many[2] if dims[0] == 0 else g, many[2] if dims[1] == 0 else x)
        )


def test_vmap_works_on_the_bare_operators(inputs):
    """While compiling, the operators are called without the Function around them."""
    _, weight, g = inputs
    many = torch.randn(4, 6, 2, 3, dtype=torch.float64)
    out = torch.vmap(lambda x: kernels._propagate(*ring(), x, weight.detach()))(many)
    torch.testing.assert_close(out[3], kernels._propagate(*ring(), many[3], weight.detach()))
    out = torch.vmap(lambda x: kernels._edge_dot(*ring(), g.detach(), x))(many)
    torch.testing.assert_close(out[3], kernels._edge_dot(*ring(), g.detach(), many[3]))
    with pytest.raises(NotImplementedError, match="vmap over the graph"):
        rowptr, *rest = ring()
        torch.vmap(lambda r: kernels.propagate(r, *rest, many[0], None))(rowptr.expand(2, -1))


def test_a_missing_transpose_is_said(inputs):
    x, weight, _ = inputs
    out = kernels.propagate(*ring()[:3], None, None, None, x, weight)
    with pytest.raises(RuntimeError, match="without its transpose"):
        out.sum().backward()
    torch.autograd.grad(kernels.propagate(*ring()[:3], None, None, None, x.detach(), weight).sum(), weight)


def test_the_plain_twin_agrees(inputs):
    """What devices without a kernel run, here on the CPU."""
    x, weight, g = (t.detach() for t in inputs)
    forward = ring()[:3]
    for w in (weight, None):
        torch.testing.assert_close(kernels._propagate_plain(*forward, x, w), kernels.propagate(*ring(), x, w))
    torch.testing.assert_close(kernels._edge_dot_plain(*forward, g, x), kernels.edge_dot(*ring(), g, x))


def test_non_contiguous_inputs(inputs):
    x, weight, _ = (t.detach() for t in inputs)
    strange = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert not strange.is_contiguous()
    torch.testing.assert_close(
        kernels.propagate(*ring(), strange, weight.T.contiguous().T), kernels.propagate(*ring(), x, weight)
    )


def test_flops_are_counted(inputs):
    x, weight, _ = inputs
    with FlopCounterMode(display=False) as counter:
        kernels.propagate(*ring(), x, weight).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 10 * 2 * 3  # forward, gradient of x, gradient of the weights


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("heads", "features"),
    [(1, 8), (1, 64), (1, 70), (1, 192), (4, 8), (8, 8), (2, 32), (15, 16), (3, 64), (3, 96), (6, 24)],
)
@pytest.mark.parametrize("weighted", [True, False])
def test_loops_compiled_for_a_shape(heads, features, weighted, dtype, seed, monkeypatch):
    """The same sums, to the rounding of another order, isolated nodes and hubs included."""
    from heedful.kernels import propagate_shaped

    nodes, edges = 50, 400
    source = torch.randint(nodes, (edges,))
    target = torch.randint(nodes, (edges,)).clamp_max(
        nodes // 2
    )  # half the nodes hear nobody, one hears many
    x, weight = torch.randn(nodes, heads, features, dtype=dtype), torch.randn(edges, heads, dtype=dtype)
    structure = Graph.from_edges(source, target, nodes=nodes).structure
    weight = weight if weighted else None
    general = kernels.propagate(*structure.forward, *structure.backward, x, weight)
    shaped = []
    find = propagate_shaped.rows_for
    monkeypatch.setattr(propagate_shaped, "WORTH_A_SHAPE", 0)
    monkeypatch.setattr(propagate_shaped, "rows_for", lambda *of: shaped.append(find(*of)) or shaped[-1])
    special = kernels.propagate(*structure.forward, *structure.backward, x, weight)
    assert shaped[0]
    bound = 1e-5 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(special, general, rtol=bound, atol=bound * 10)
    expected = torch.zeros_like(x).index_add(
        0, target, x[source] * (1 if weight is None else weight[..., None])
    )
    torch.testing.assert_close(special, expected, rtol=bound, atol=bound * 10)
