"""Compiled calls run the kernels of features, too: one operator each, the same to the bit as eager ones."""

import random

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import heedful
from heedful import (
    Alibi,
    Causal,
    EluKernel,
    Everyone,
    FeatureMap,
    Polynomial,
    RandomFeatures,
    Uniform,
    attend,
)
from heedful.attention.strategies import Random
from heedful.kernels import feature_operators as operators
from heedful.kernels import sparse_operators

from .compiling import TRANSFORMS, Operators, transformed

pytest.importorskip("triton")

CALLS = [
    (EluKernel(), Everyone(), None),
    (EluKernel(), Causal(), None),
    (EluKernel(), Causal(), Alibi()),
    (RandomFeatures(20, seed=3), Everyone(), None),
    (RandomFeatures(20, seed=3), Causal(), Alibi()),
    (FeatureMap(torch.exp, positive=True), Causal(), None),
    (Polynomial(2), Everyone(), None),
    (Polynomial(2), Causal(), None),
    (Polynomial(4), Everyone(), None),
    (Uniform(), Causal(), None),
]


@pytest.fixture
def device(device, monkeypatch):
    if device == "cpu":
        monkeypatch.setattr(sparse_operators, "on_gpu", lambda device: True)
    torch._dynamo.reset()
    return device


def call(similarity, neighbors, position):
    strategy = "factored" if isinstance(neighbors, Everyone) else "scan"

    def run(q, k, v, way=strategy):
        return attend(q, k, v, similarity=similarity, neighbors=neighbors, position=position, strategy=way)

    return run


def drawn(device, seed, dim=4):
    n = random.Random(seed).randint(20, 70)
    return [torch.randn(1, 2, n, dim, device=device).requires_grad_() for _ in range(3)]


def with_gradients(run, tensors, direction=None):
    out = run(*tensors)
    direction = torch.ones_like(out).cumsum(-2) if direction is None else direction
    found = torch.autograd.grad(out, tensors, direction, allow_unused=True, materialize_grads=True)
    return out, *found


@pytest.mark.parametrize(("similarity", "neighbors", "position"), CALLS, ids=str)
def test_compiled_is_one_operator_and_the_same_to_the_bit(
    similarity, neighbors, position, seed, device, request
):
    run, backend, tensors = call(similarity, neighbors, position), Operators(), drawn(device, seed)
    compiled = torch.compile(run, fullgraph=True, backend=backend)
    if device == "cuda":
        # What a monomial's factors get for gradients torch adds up in any order, unless told not to.
        torch.use_deterministic_algorithms(True, warn_only=True)
        request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    for found, wanted in zip(with_gradients(compiled, tensors), with_gradients(run, tensors), strict=True):
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)
    assert len(backend.seen) == 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("neighbors", [Everyone(), Causal()], ids=str)
def test_softmax_by_random_features_is_one_operator_too(neighbors, dynamic, seed, device):
    features, backend, tensors = call(RandomFeatures(20), neighbors, None), Operators(), drawn(device, seed)
    run = lambda *x: attend(*x, neighbors=neighbors, strategy=Random(20), exact=False)  # noqa: E731
    compiled = torch.compile(run, fullgraph=True, dynamic=dynamic, backend=backend)
    for way in (run, compiled):
        found = with_gradients(way, tensors)
        assert all(map(torch.equal, found, with_gradients(features, tensors)))
    assert len(set(backend.seen)) == 1  # where numbers are variables torch may look twice


def test_by_inductor(seed, device):
    run, tensors = call(Polynomial(2), Causal(), None), drawn(device, seed)
    compiled = torch.compile(run, fullgraph=True)
    wide = [x.detach().double().requires_grad_() for x in tensors]
    direction = torch.randn_like(tensors[2])
    direction[..., :16, :] = 0  # they hear so few that their weights may be near 0
    wanted = with_gradients(lambda *x: run(*x, "reference"), wide, direction.double())
    for found, other in zip(with_gradients(compiled, tensors, direction)[1:], wanted[1:], strict=True):
        assert (found - other).norm() <= 1e-3 * other.norm()


def test_one_compiled_function_takes_many_lengths(seed, device):
    for similarity in (EluKernel(), Polynomial(2)):
        torch._dynamo.reset()
        backend, run = Operators(), call(similarity, Causal(), None)
        compiled = torch.compile(run, fullgraph=True, backend=backend)
        for length in (17, 20, 27, 30, 31):
            q, k, v = (torch.randn(1, 1, length, 4, device=device).requires_grad_() for _ in range(3))
            assert torch.equal(compiled(q, k, v), run(q, k, v))
        assert len(backend.seen) <= 2  # once for a length, once for any


@pytest.mark.parametrize("similarity", [RandomFeatures(20), Polynomial(2)], ids=str)
def test_vmap_inside_what_is_compiled(similarity, seed, device):
    run, backend = call(similarity, Causal(), None), Operators()
    q, k, v = (x.detach() for x in drawn(device, seed))
    several = torch.stack([q, q.flip(-2)]), k, torch.stack([v, v + 1], 1)
    shared = torch.func.vmap(run, in_dims=(0, None, 1))
    found, wanted = torch.compile(shared, fullgraph=True, backend=backend)(*several), shared(*several)
    assert (found - wanted).norm() <= 1e-4 * wanted.norm() and len(backend.seen) == 1


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(
    ("similarity", "neighbors"), [(EluKernel(), Causal()), (Polynomial(2), Everyone())], ids=str
)
def test_function_transforms_inside_what_is_compiled(transform, similarity, neighbors, seed, device):
    """Torch computes them: operators pass on no tangents, nor gradients under torch.func."""
    run = call(similarity, neighbors, None)
    tensors = torch.randn(3, 1, 2, 9, 3, device=device)
    for wanted, found in zip(*transformed(transform, run, tensors), strict=True):
        assert wanted.any() and torch.allclose(
            wanted, found, rtol=1e-4, atol=1e-4 * wanted.abs().max().item()
        )


@pytest.mark.parametrize("similarity", [EluKernel(), RandomFeatures(20), Polynomial(2)], ids=str)
def test_a_compiled_step(similarity, seed, device):
    torch.manual_seed(seed)
    backend, n = Operators(), 5
    q, k, v = torch.randn(3, 2, 2, n, 4, device=device).unbind()
    options = {"similarity": similarity, "neighbors": Causal()}

    def token(q, k, v, state):
        return heedful.step(q, k, v, state, **options)

    compiled, states, outs = torch.compile(token, fullgraph=True, backend=backend), [None, None], [[], []]
    with torch.no_grad():
        for i in range(n):
            for place, run in enumerate((token, compiled)):
                out, states[place] = run(*(x[..., i : i + 1, :] for x in (q, k, v)), states[place])
                outs[place].append(out)
    assert torch.equal(*(torch.cat(found, -2) for found in outs)) and len(backend.seen) >= 2


def test_slopes_that_learn_are_left_to_torch(seed, device):
    slopes = torch.tensor([0.1, 0.5], device=device, requires_grad=True)
    run, backend = call(EluKernel(), Causal(), Alibi(slopes)), Operators()
    tensors = drawn(device, seed)
    found, wanted = (
        torch.autograd.grad(f(*tensors).square().sum(), slopes)[0]
        for f in (torch.compile(run, fullgraph=True, backend=backend), run)
    )
    assert torch.allclose(found, wanted, rtol=1e-4) and not backend.seen


def test_what_is_exported_needs_none_of_ours(seed, device):
    class Model(torch.nn.Module):
        def forward(self, q, k, v):
            return call(EluKernel(), Everyone(), None)(q, k, v)

    tensors = tuple(x.detach() for x in drawn(device, seed))
    program = torch.export.export(Model(), tensors)
    assert not any("heedful" in str(node.target) for node in program.graph.nodes)
    assert torch.allclose(program.module()(*tensors), Model()(*tensors), atol=1e-5)


def arguments(name, device, training=True):
    q, k, v = torch.randn(3, 2, 20, 4, device=device).unbind()
    half, rates = 0.5, torch.tensor([0.1, 0.0], device=device)
    if name == "quadratic":
        return [q.requires_grad_(), k, v.requires_grad_(), torch.rand(2, 20, device=device), True]
    w = torch.randn(20, 4, device=device)
    table = (w, w.square().sum(-1) / 2) if name == "exponential" else (None, None)
    leaves = q.requires_grad_(training), k.requires_grad_(training), v
    causal = name == "elu"
    features = 20 if name == "exponential" else 4
    return [*leaves, name, features, *table, half, rates if causal else None, causal, training]


@pytest.mark.parametrize("name", ["elu", "exponential", "quadratic"])
def test_opcheck(name, seed, device):
    forward = operators.quadratic_attention if name == "quadratic" else operators.feature_attention
    backward = (
        operators.quadratic_attention_backward
        if name == "quadratic"
        else operators.feature_attention_backward
    )
    given = arguments(name, device)
    torch.library.opcheck(forward, given)
    plain = [x.detach() if isinstance(x, torch.Tensor) else x for x in given]
    out, *kept = forward(*plain)
    tensors, rest = (4, plain[4:]) if name == "quadratic" else (3, plain[3:-1])
    for needs in ([True, True, True], [False, True, False]):
        found = backward(torch.randn_like(out), *plain[:tensors], out, *kept, *rest, needs)
        assert [bool(g.numel()) for g in found] == needs
        torch.library.opcheck(backward, (torch.randn_like(out), *plain[:tensors], out, *kept, *rest, needs))
    if name != "quadratic":
        torch.library.opcheck(forward, arguments(name, device, training=False))
        state = torch.randn(2, plain[4], 5, device=device)
        token = [x[:, 0].contiguous() for x in plain[:3]]
        torch.library.opcheck(operators.feature_step, (*token, *plain[3:8], state, None))
        torch.library.opcheck(operators.feature_step, (*token, *plain[3:8], None, None))


def test_what_is_counted_is_linear_in_the_length(seed, device):
    counted = []
    for length in (64, 128):
        q, k, v = torch.randn(3, 2, length, 4, device=device).unbind()
        with FlopCounterMode(display=False) as counter:
            operators.feature_attention(q, k, v, "elu", 4, None, None, 0.0, None, True, False)
            operators.quadratic_attention(q, k, v, torch.ones(2, length, device=device), True)
        counted.append(counter.get_total_flops())
    assert counted[0] == 2 * 2 * 64 * 2 * (4 + 16) * 5 and counted[1] == 2 * counted[0]
