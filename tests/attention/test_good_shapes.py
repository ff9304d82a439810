"""Heads and features that are no powers of two: filled up, or in parts, and nobody notices."""

from __future__ import annotations

import random

import pytest
import torch

from heedful import Additive, Graph, Polynomial, Softmax, Uniform, attend
from heedful.attention.strategies.sparse import _powers_of_two
from heedful.kernels.sparse_operators import WORTH_A_SHAPE


@pytest.mark.parametrize("kind", ["softmax", "polynomial", "additive", "additive_v2", "uniform"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("extras", [False, True])
def test_as_the_reference(kind, dropout, extras, seed):
    draw = random.Random(seed)
    heads, features = draw.choice([3, 12]), draw.choice([5, 7])
    wide = 1 if kind == "additive" else draw.choice([5, 6])
    nodes = 200
    edges = WORTH_A_SHAPE // (heads * (wide + features)) + 1
    ends = torch.randint(nodes, (2, edges))

    def numbers(*shape):
        return torch.randn(shape, dtype=torch.float64, requires_grad=True)

    tensors = [numbers(heads, nodes, wide), numbers(heads, nodes, wide), numbers(heads, nodes, features)]
    similarity = {
        "softmax": Softmax(),
        "polynomial": Polynomial(2),
        "additive": Additive(0.2),
        "additive_v2": Additive(0.2, weight=numbers(heads, wide)),
        "uniform": Uniform(),
    }[kind]
    given = {}
    if extras:
        given = {"weight": numbers(heads, edges).detach().abs(), "value": numbers(edges, features)}
        if kind != "uniform":
            given["key"] = numbers(heads, edges, wide)
    graph = Graph.from_edges(*ends, nodes=nodes).with_edges(**given)
    wanted = [t for t in (*tensors, *given.values(), getattr(similarity, "weight", None)) if t is not None]
    wanted = [t for t in wanted if t.requires_grad]
    direction = torch.randn(heads, nodes, features, dtype=torch.float64)
    found = []
    for strategy in ("sparse", "reference"):
        torch.manual_seed(seed)  # what is dropped
        out = attend(*tensors, similarity=similarity, neighbors=graph, strategy=strategy, dropout=dropout)
        gradients = torch.autograd.grad(
            (out * direction).sum(), wanted, materialize_grads=True, allow_unused=True
        )
        found.append([out, *gradients])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("heads", "most", "parts"), [(12, 16, [8, 4]), (7, 4, [4, 2, 1]), (40, 16, [16, 16, 8])]
)
def test_parts(heads, most, parts):
    assert _powers_of_two(heads, most) == parts
    assert _powers_of_two(heads, most + 1) == parts
