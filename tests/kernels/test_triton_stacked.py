"""Copies of a GAT layer as one on the GPU: what each computes is what it would compute alone."""

import pytest
import torch
from torch.func import grad, vmap

from heedful import Graph
from heedful.kernels import gat_stacked, propagate, sparse_operators
from heedful.kernels.gat_stacked import apart, of_copies
from heedful.kernels.sparse import Structure
from heedful.models import GAT
from heedful.nn import GATConv
from heedful.training.streams import Streams

pytest.importorskip("triton")
import triton.language as tl
from triton.runtime import interpreter


@pytest.fixture
def device(device, monkeypatch):
    if device == "cpu":
        for module in (sparse_operators, propagate):
            monkeypatch.setattr(module, "on_gpu", lambda device: True)
        monkeypatch.setattr(interpreter, "_convert_float", rounded)
    return device


def rounded(x, source, target, mode, convert=interpreter._convert_float):
    """To bfloat16 as a GPU rounds; Triton's interpreter cuts off, and its sums come out too small."""
    if (source, target) == (tl.float32, tl.bfloat16):
        return torch.tensor(x).bfloat16().view(torch.int16).numpy().view("uint16")
    return convert(x, source, target, mode)


def random_structure(device, nodes=9, edges=40):
    """A listener and a speaker that have a third of the edges, and nodes that hear nobody."""
    source, target = torch.randint(nodes, (edges,)), torch.randint(nodes - 2, (edges,))
    target[: edges // 3], source[edges // 3 : 2 * edges // 3] = 1, nodes // 2
    graph = Graph.from_edges(source.to(device), target.to(device), nodes=nodes)
    return Structure(
        graph.rowptr, graph.col, graph.edge, graph.colptr, graph.row, graph.edge_transposed
    )  # fmt: skip


def problem(device, copies, heads, dim, nodes=9, dtype=torch.float64, biased=True):
    shapes = (copies, nodes, heads * dim), (copies, heads, dim), (copies, heads, dim), (copies, heads * dim)
    tensors = [torch.randn(shape, dtype=torch.float64).to(device, dtype).requires_grad_() for shape in shapes]
    return [*tensors[:3], tensors[3] if biased else None]


@pytest.mark.parametrize("split", [7, 256])
@pytest.mark.parametrize(
    ("copies", "heads", "dim", "dropout", "biased"),
    [(3, 2, 4, 0.0, True), (5, 3, 5, 0.4, False), (1, 2, 3, 0.4, True), (6, 1, 7, 0.0, True)],
)
def test_against_each_alone(seed, copies, heads, dim, dropout, biased, split, device, monkeypatch):
    """Every gradient and the second ones; hubs in pieces and whole."""
    from heedful.kernels import sparse_triton

    monkeypatch.setattr(sparse_triton, "split_of", lambda edges: split)
    structure = random_structure(device)
    inputs = problem(device, copies, heads, dim, biased=biased)
    wanted = [t for t in inputs if t is not None]
    seeds = torch.randint(2**62, (copies,), device=device) if dropout else None
    gradient = torch.randn(copies, 9, heads * dim, dtype=torch.float64).to(device)
    results = []
    for function in (of_copies, apart):
        out = function(*inputs, seeds, structure, 0.2, dropout)
        found = [out, *torch.autograd.grad(out, wanted, gradient, retain_graph=True)]
        if split == 7 and copies == 3:
            again = torch.autograd.grad(out.square().sum(), wanted[:2], create_graph=True)
            found += torch.autograd.grad(sum(t.square().sum() for t in again), wanted)
        results.append(found)
    for x, y in zip(*results, strict=True):
        assert torch.allclose(x, y, atol=1e-9 * y.abs().max().item())


def test_wherever_copies_lie(seed, device):
    """Nodes first or copies first, or the same z for all: nothing but the numbers matters."""
    structure = random_structure(device)
    z, *vectors = problem(device, 4, 2, 3)
    expected = of_copies(z, *vectors, None, structure)
    wanted = torch.autograd.grad(expected.square().sum(), [z, *vectors])
    nodes_first = z.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    out = of_copies(nodes_first, *vectors, None, structure)
    found = torch.autograd.grad(out.square().sum(), [nodes_first, *vectors])
    assert all(torch.allclose(x, y) for x, y in zip((out, *found), (expected, *wanted), strict=True))
    shared = z.detach()[0].requires_grad_()
    out = of_copies(shared.expand(4, -1, -1), *vectors, None, structure)
    alone = of_copies(shared.expand(4, -1, -1).contiguous(), *vectors, None, structure)
    assert torch.equal(out, alone)
    pairs = (torch.autograd.grad(t.square().sum(), [shared, *vectors]) for t in (out, alone))
    assert all(torch.allclose(x, y) for x, y in zip(*pairs, strict=True))


def judged_in_half_precision(inputs, structure):
    """The result and every gradient are those of the same numbers in float64, but for rounding."""
    exact = [t.detach().double().requires_grad_() for t in inputs]
    out, expected = of_copies(*inputs, None, structure), apart(*exact, None, structure, 0.2, 0.0)
    assert (out.double() - expected).norm() <= 1e-2 * expected.norm()
    gradient = torch.randn(out.shape, device=out.device).to(out.dtype)
    found = torch.autograd.grad(out, inputs, gradient)
    wanted = torch.autograd.grad(expected, exact, gradient.double())
    for x, y in zip(found, wanted, strict=True):  # what goes through the scores may cancel
        least = gradient.double().norm()
        assert x.dtype == out.dtype and (x.double() - y).norm() <= 3e-2 * torch.maximum(y.norm(), least)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_in_half_precision(seed, dtype, device):
    structure = random_structure(device)
    judged_in_half_precision(problem(device, 3, 2, 8, dtype=dtype), structure)


@pytest.mark.parametrize("split", [7, 256])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_slopes_in_half_precision(seed, dtype, split, device, monkeypatch):
    """q_i = 1 + a_i and k_j = −1 − a_j are 1 and −1 in half precision, but a_i − a_j has a sign: a slope."""
    from heedful.kernels import sparse_triton

    monkeypatch.setattr(sparse_triton, "split_of", lambda edges: split)
    z, listener, speaker, bias = problem(device, 3, 2, 8, dtype=dtype)
    a = (torch.randint(8, (3, 9, 2)) * 2**-14).to(device, dtype)
    assert (1 + a == 1).all()
    with torch.no_grad():
        each = z.unflatten(2, (2, 8))
        each[..., 0], each[..., 1] = 1, a
        listener.zero_()[..., :2] = 1
        speaker.copy_(-listener)
    judged_in_half_precision([z, listener, speaker, bias], random_structure(device))


def test_offsets_of_64_bits_and_always_the_same_bits(seed, device, monkeypatch):
    from heedful.kernels import sparse_triton

    structure, inputs = random_structure(device), problem(device, 3, 3, 4, dtype=torch.float32)
    results = []
    for narrow, programs in ((2**31, 2048), (2**31, 2048), (1, 2)):
        monkeypatch.setattr(sparse_triton, "NARROW", narrow)
        monkeypatch.setattr(sparse_triton, "PROGRAMS", programs)
        out = of_copies(*inputs, None, structure)
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    assert all(torch.equal(x, y) for x, y in zip(*results[:2], strict=True))
    assert all(torch.allclose(x, y, atol=1e-4) for x, y in zip(*results[1:], strict=True))


def test_nobody_to_hear(seed, device):
    structure = random_structure(device)
    empty = structure._replace(
        rowptr=torch.zeros_like(structure.rowptr), col=structure.col[:0], edge=structure.edge[:0],
        colptr=torch.zeros_like(structure.colptr), row=structure.row[:0],
        edge_transposed=structure.edge_transposed[:0],
    )  # fmt: skip
    inputs = problem(device, 3, 2, 4)
    out = of_copies(*inputs, None, empty)
    assert torch.allclose(out, inputs[3].unsqueeze(1).expand_as(out))
    *zeros, d_bias = torch.autograd.grad(out.sum(), inputs)
    assert all((t == 0).all() for t in zeros) and (d_bias == 9).all()


@pytest.mark.parametrize("split", [7, 256])
@pytest.mark.parametrize("weights", ["a copy", "shared", None])
@pytest.mark.parametrize("features", [8, 20])
def test_sums_of_copies(seed, features, weights, split, device, monkeypatch):
    """Where they lie, forward and backward: neither copies of x nor of the sums are made."""
    from heedful.kernels import sparse_triton

    monkeypatch.setattr(sparse_triton, "split_of", lambda edges: split)
    source, target = torch.randint(7, (40,)), torch.randint(9, (40,))
    target[:15], source[15:30] = 2, 3
    graph = Graph.from_edges(source.to(device), target.to(device), sources=7, targets=9)
    x = torch.randn(5, 7, features, dtype=torch.float64).to(device).requires_grad_()
    weight = None if weights is None else torch.randn(5, 40, dtype=torch.float64).to(device)
    weight = weight[0] if weights == "shared" else weight
    dim = 0 if weights == "a copy" else None
    out = vmap(lambda x, w: graph.with_edges(weight=w).propagate(x), (0, dim))(x, weight)
    heard = x[:, source] if weight is None else x[:, source] * weight.unsqueeze(-1)
    expected = torch.zeros_like(out).index_add(1, target.to(device), heard)
    direction = torch.randn_like(out, memory_format=torch.contiguous_format)
    (found,), (wanted,) = (torch.autograd.grad(t, x, direction) for t in (out, expected))
    assert torch.allclose(out, expected) and torch.allclose(found, wanted)
    assert out.is_contiguous() and found.is_contiguous()


def test_the_operator_keeps_its_word_about_layouts(seed, device):
    graph = Graph.from_edges(*torch.randint(7, (2, 20), device=device), nodes=7)
    slots = graph.structure
    x = torch.randn(5, 7, 20, dtype=torch.float64).to(device).transpose(0, 1)
    weight = torch.randn(20, 5, dtype=torch.float64).to(device)
    for one in (x, x.contiguous()):
        given = (*slots.forward, *slots.backward, one, weight)
        torch.library.opcheck(propagate._propagate, given, test_utils=("test_schema", "test_faketensor"))


def layers_alone_and_stacked(layer, x, graph, parameters, seeds, x_dim=0):
    """(results of each copy in turn, those of all under vmap), each with gradients of parameters and x."""
    device = next(iter(parameters.values())).device
    streams = Streams([torch.Generator().manual_seed(int(n)).get_state() for n in seeds])
    if device.type == "cuda":
        streams.add_cuda(device, [torch.Generator(device).manual_seed(int(n)).get_state() for n in seeds])

    def call(parameters, x):
        return torch.func.functional_call(layer, parameters, (x, graph))

    def copy(index, parameters, x):
        with streams.within(index):
            return call(parameters, x)

    learned = [*parameters.values(), *([x] if isinstance(x, torch.Tensor) else [])]
    out = vmap(copy, (0, 0, x_dim))(torch.arange(len(seeds)), parameters, x)
    direction = torch.randn_like(out)
    stacked = [out, *torch.autograd.grad(out, learned, direction)]
    outs = []
    for n, number in enumerate(seeds):
        torch.manual_seed(int(number))
        own = {name: p[n] for name, p in parameters.items()}
        outs.append(call(own, x if x_dim is None else x[n]))
    return [torch.stack(outs), *torch.autograd.grad(torch.stack(outs), learned, direction)], stacked


@pytest.mark.parametrize("features", ["a copy", "shared", "words"])
@pytest.mark.parametrize(
    "options",
    [{}, {"concat": False, "dropout": 0.5}, {"shared": True, "bias": False}, {"self_loops": False}],
    ids=str,
)
def test_a_layer(seed, options, features, device, monkeypatch):
    """With dropout, each copy drops what it would drop alone."""
    graph = Graph.from_edges(*torch.randint(12, (2, 40), device=device), nodes=12)
    layer = GATConv(6, 4, 3, **options).to(device, torch.float64)
    parameters = {
        name: torch.randn(2, *p.shape, dtype=p.dtype).to(device).requires_grad_()
        for name, p in layer.named_parameters()
    }
    x = torch.randn(2, 12, 6, dtype=torch.float64).to(device)
    x = x.requires_grad_() if features == "a copy" else x[0].clone()
    x = Graph.from_dense(x * (x > 0)) if features == "words" else x.requires_grad_()
    calls = []
    original = gat_stacked.of_copies
    monkeypatch.setattr(gat_stacked, "of_copies", lambda *rest: calls.append(0) or original(*rest))
    dim = 0 if features == "a copy" else None
    alone, stacked = layers_alone_and_stacked(layer, x, graph, parameters, torch.randint(2**40, (2,)), dim)
    assert len(calls) == 1
    for a, b in zip(alone, stacked, strict=True):
        assert torch.allclose(a, b, atol=1e-9 * a.abs().max().item())


def test_words_dropped_by_each(seed, device):
    """Two layers and all of their dropout, with features that are sparse."""
    graph = Graph.from_edges(*torch.randint(10, (2, 30), device=device), nodes=10)
    words = Graph.from_dense((torch.rand(10, 15) < 0.3).double().to(device))
    model = GAT(15, 4, 3, heads=2).to(device, torch.float64)
    parameters = {
        name: torch.randn(3, *p.shape, dtype=p.dtype).to(device).requires_grad_()
        for name, p in model.named_parameters()
    }
    numbers = torch.randint(2**40, (3,))
    alone, stacked = layers_alone_and_stacked(model, words, graph, parameters, numbers, None)
    for a, b in zip(alone, stacked, strict=True):
        assert torch.allclose(a, b, atol=1e-9 * a.abs().max().item())


def test_others_go_the_general_way(seed, device, monkeypatch):
    """torch.func's own gradients, copies of copies, and forward mode."""
    graph = Graph.from_edges(*torch.randint(6, (2, 14), device=device), nodes=6)
    layer = GATConv(3, 2, 2).to(device, torch.float64)
    weight = torch.randn(2, 3, 4, dtype=torch.float64).to(device)
    x = torch.randn(6, 3, dtype=torch.float64).to(device)

    def call(weight):
        return torch.func.functional_call(layer, {"weight": weight}, (x, graph)).square().sum()

    monkeypatch.setattr(gat_stacked, "of_copies", None)
    inner = vmap(grad(call))(weight)
    nested = vmap(vmap(call))(weight.unsqueeze(0))
    monkeypatch.undo()
    if device == "cpu":
        for module in (sparse_operators, propagate):
            monkeypatch.setattr(module, "on_gpu", lambda device: True)
    own = weight.clone().requires_grad_()
    total = vmap(call)(own)
    assert torch.allclose(nested[0], total)
    (outer,) = torch.autograd.grad(total.sum(), own)
    assert torch.allclose(inner, outer)
