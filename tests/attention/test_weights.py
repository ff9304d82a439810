"""weigh(): the weights `attend` uses, for every similarity, pattern and position."""

from __future__ import annotations

import math

import pytest
import torch

import heedful
from heedful import Alibi, Causal, Everyone, Graph, Mask, Relative, Rotary, Window, attend
from heedful.attention.weights import weigh

SIMILARITIES = [
    heedful.Softmax(),
    heedful.Softmax(scale=0.3),
    heedful.Argmax(),
    heedful.Polynomial(2),
    heedful.EluKernel(),
    heedful.Uniform(),
    heedful.ScoreFunction(lambda q, k: -torch.cdist(q, k)),
]
PATTERNS = [Everyone(), Causal(), Window(2), Causal() & Window(1), Window(1) | heedful.Global([0])]
POSITIONS = [None, Alibi(), Rotary(), Relative(torch.linspace(-1, 1, 21), clamp=True)]


def tensors(queries=6, keys=8, lead=(2, 4), key_heads=2):
    shape = (*lead[:-1], key_heads, keys)
    query = torch.randn(*lead, queries, 4, dtype=torch.float64)
    return query, torch.randn(*shape, 4, dtype=torch.float64), torch.randn(*shape, 3, dtype=torch.float64)


@pytest.mark.parametrize("similarity", SIMILARITIES, ids=str)
@pytest.mark.parametrize("neighbors", PATTERNS, ids=str)
def test_weights_times_values_is_attention(similarity, neighbors, seed):
    q, k, v = tensors()
    for position in POSITIONS:
        options = {"similarity": similarity, "neighbors": neighbors, "position": position}
        alpha = weigh(q, k, **options)
        assert alpha.shape == (2, 4, 6, 8)
        expected = attend(q, k, v, **options)
        torch.testing.assert_close(alpha @ v.repeat_interleave(2, -3), expected, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(alpha.sum(-1), torch.ones_like(alpha[..., 0]))


def test_without_heads(seed):
    q, k, v = torch.randn(3, 5, 4)
    torch.testing.assert_close(weigh(q, k) @ v, attend(q, k, v), rtol=1e-5, atol=1e-6)


def test_who_hears_nobody(seed):
    q, k, _ = (x.requires_grad_() for x in tensors())
    allowed = torch.ones(6, 8, dtype=torch.bool)
    allowed[3] = False
    for similarity in SIMILARITIES:
        alpha = weigh(q, k, similarity=similarity, neighbors=Mask(allowed))
        assert (alpha[..., 3, :] == 0).all()
        if alpha.requires_grad:
            for gradient in torch.autograd.grad(alpha.square().sum(), (q, k), allow_unused=True):
                assert gradient is None or gradient.isfinite().all()


def test_a_bias_for_every_pair(seed):
    """The same as edges that carry it."""
    q, k, v = tensors(key_heads=4)
    bias = torch.randn(2, 4, 6, 8, dtype=torch.float64)
    target, source = torch.ones(6, 8).nonzero(as_tuple=True)
    graph = Graph.from_edges(source, target, sources=8, targets=6).with_edges(bias=bias.flatten(-2))
    for similarity in (heedful.Softmax(), heedful.Polynomial(2)):
        expected = attend(q, k, v, similarity=similarity, neighbors=graph)
        torch.testing.assert_close(weigh(q, k, similarity=similarity, bias=bias) @ v, expected)
        torch.testing.assert_close(weigh(q, k, similarity=similarity, neighbors=graph) @ v, expected)
    silent = bias.masked_fill(torch.rand(6, 8) < 0.3, -math.inf)
    a = weigh(q, k, bias=silent, neighbors=Window(2))
    assert (
        (a == 0)
        == ((silent == -math.inf) | ~Window(2).mask(heedful.attention.neighbors.Tile.whole(6, 8, "cpu")))
    ).all()


def test_gradients(seed):
    q, k, _ = (x.requires_grad_() for x in tensors(3, 4, (2,), 1))
    bias = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def weights(q, k, bias):
        return weigh(q, k, bias=bias, neighbors=Causal())

    assert torch.autograd.gradcheck(weights, (q, k, bias))
    assert torch.autograd.gradgradcheck(weights, (q, k, bias))


def test_half_precision_keeps_its_dtype(seed):
    q, k, _ = (x.bfloat16() for x in tensors())
    alpha = weigh(q, k)
    assert alpha.dtype == torch.bfloat16
    torch.testing.assert_close(alpha.double(), weigh(q.double(), k.double()), rtol=0.01, atol=0.01)


def test_bad_input():
    x = torch.randn(2, 5, 4)
    with pytest.raises(ValueError, match="edges"):
        weigh(x, x, neighbors=Graph.from_edges([0], [1], nodes=5), bias=torch.zeros(5, 5))
    with pytest.raises(ValueError, match="key has 3 features"):
        weigh(x, x[..., :3])
    with pytest.raises(ValueError, match="distances"):
        weigh(x, x, position=Relative(torch.zeros(3)))
