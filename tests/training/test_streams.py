"""Streams: under vmap each seed draws, bit for bit, what it would draw alone."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heedful import Graph, Softmax, attend
from heedful.training.streams import Streams

GRAPH = Graph.from_edges([0, 1, 2, 3, 0, 2], [1, 2, 3, 0, 2, 4], nodes=5)
LSTM = nn.LSTM(4, 3, 2, dropout=0.5)
ATTENTION = nn.MultiheadAttention(4, 2, dropout=0.5)


def in_place(x):
    y = x.clone()
    F.dropout(y, 0.5, inplace=True)
    return y


FUNCTIONS = {
    "dropout": lambda x: F.dropout(x, 0.3),
    "dropout turned": lambda x: F.dropout(x.T, 0.3),
    "dropout in place": in_place,
    "dropout1d": lambda x: F.dropout1d(x, 0.5),
    "dropout2d": lambda x: F.dropout2d(x.view(1, 5, 2, 2), 0.5),
    "dropout module": nn.Dropout(0.4),
    "torch.dropout": lambda x: torch.dropout(x, 0.4, True),
    "alpha": lambda x: F.alpha_dropout(x, 0.3, training=True),
    "feature alpha": nn.FeatureAlphaDropout(0.3),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "gumbel": lambda x: F.gumbel_softmax(x),
    "rand": lambda x: x * torch.rand(4) + torch.rand(()),
    "rand_like": lambda x: torch.rand_like(x) + torch.randn_like(x) + torch.randint_like(x, 9),
    "mixed kinds": lambda x: torch.rand(2, 2, dtype=torch.float64) + torch.randint(3, 9, (2, 1)),
    "randn": lambda x: torch.randn(5, 4) * x,
    "randint": lambda x: x[torch.randint(5, (3,))],
    "randperm": lambda x: x[torch.randperm(5)],
    "bernoulli": lambda x: torch.bernoulli(x.sigmoid()) + x.sigmoid().bernoulli(),
    "normal": lambda x: torch.normal(x, 0.1) + torch.normal(0.0, 1.0, (4,)),
    "multinomial": lambda x: torch.multinomial(x.softmax(-1), 2).float(),
    "filled": lambda x: x.new_empty(3).uniform_() + x.new_empty(3).bernoulli_(0.5) + x.new_empty(3).normal_(),
    "sdpa": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.4),
    "attend": lambda x: attend(x, x, x, dropout=0.4, strategy="reference"),
    "attend on a graph": lambda x: attend(x, x, x, similarity=Softmax(), neighbors=GRAPH, dropout=0.4),
    "lstm": lambda x: LSTM(x)[0],
    "multihead": lambda x: ATTENTION(x, x, x)[0],
    "a few": lambda x: F.dropout(torch.rand(4) + F.dropout(x, 0.2), 0.5) * torch.rand(1),
}


def starts(seed, count=3):
    return [torch.Generator().manual_seed(seed + n).get_state() for n in range(count)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_draws_what_it_would_draw_alone(name, seed):
    function, x, states = FUNCTIONS[name], torch.randn(3, 5, 4, requires_grad=True), starts(seed)
    before, streams = torch.get_rng_state(), Streams(list(states))

    def inside(index, x):
        with streams.within(index):
            return function(x)

    found = torch.vmap(inside, randomness="error")(torch.arange(3), x)
    assert torch.equal(torch.get_rng_state(), before)
    together = torch.autograd.grad(found.sum(), x)[0] if found.requires_grad else None
    for n, state in enumerate(states):
        torch.set_rng_state(state)
        own = x[n].detach().requires_grad_()
        alone = function(own)
        assert torch.equal(torch.get_rng_state(), streams.cpu[n].get_state())  # the same number of draws
        torch.testing.assert_close(found[n], alone, rtol=1e-5, atol=1e-6)  # masks differ by much more
        if together is not None:
            torch.testing.assert_close(
                together[n], torch.autograd.grad(alone.sum(), own)[0], rtol=1e-5, atol=1e-6
            )


@pytest.mark.parametrize(
    "name", ["dropout", "dropout turned", "rand", "randperm", "bernoulli", "filled", "rrelu"]
)
def test_to_the_bit(name, seed):
    function, x, states = FUNCTIONS[name], torch.randn(3, 5, 4), starts(seed)
    streams = Streams(list(states))

    def inside(index, x):
        with streams.within(index):
            return function(x)

    found = torch.vmap(inside)(torch.arange(3), x)
    for n, state in enumerate(states):
        torch.set_rng_state(state)
        assert torch.equal(found[n], function(x[n]))


def test_what_draws_nothing_is_left_alone(seed):
    states = starts(seed)
    streams, x = Streams(list(states)), torch.randn(3, 5, 4)

    def inside(index, x):
        with streams.within(index):
            x = F.dropout(x, 0.5, training=False) + F.dropout(x, 0.0) + nn.Dropout(0.5).eval()(x)
            return F.scaled_dot_product_attention(x[None], x[None], x[None])

    assert torch.vmap(inside)(torch.arange(3), x).shape == (3, 1, 5, 4)
    assert all(torch.equal(a.get_state(), b) for a, b in zip(streams.cpu, states, strict=True))


def test_shared_tensors_and_own_generators_are_refused(seed):
    streams = Streams(starts(seed))

    def filled(index):
        with streams.within(index):
            return torch.empty(3).uniform_()

    def generated(index):
        with streams.within(index):
            return torch.rand(3, generator=torch.Generator())

    with pytest.raises(ValueError, match="uniform_ would fill a tensor that all seeds share"):
        torch.vmap(filled)(torch.arange(3))
    with pytest.raises(ValueError, match="generator of its own"):
        torch.vmap(generated)(torch.arange(3))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("kind", ["usual", "ignored", "smoothed", "own", "weighted", "chances", "rows"])
def test_cross_entropy_is_cross_entropy(kind, reduction, seed):
    """The short way and where it is not taken."""
    x, target = torch.randn(3, 6, 4, dtype=torch.float64, requires_grad=True), torch.randint(4, (6,))
    options: dict = {"reduction": reduction}
    if kind == "ignored":
        target[2] = -100
    if kind == "smoothed":
        options["label_smoothing"] = 0.1
    if kind == "weighted":
        options["weight"] = torch.rand(4, dtype=torch.float64)
    if kind == "chances":
        target = torch.rand(6, 4, dtype=torch.float64)
    if kind == "rows":  # classes in the middle
        x, target = torch.randn(3, 2, 4, 5, dtype=torch.float64, requires_grad=True), torch.randint(4, (2, 5))
    targets = torch.randint(4, (3, 6)) if kind == "own" else torch.stack([target] * 3)
    streams = Streams(starts(seed))

    def inside(index, x, own):
        with streams.within(index):
            return F.cross_entropy(x, own if kind == "own" else target, **options)

    found = torch.vmap(inside)(torch.arange(3), x, targets)
    wanted = torch.stack([F.cross_entropy(a, b, **options) for a, b in zip(x, targets, strict=True)])
    torch.testing.assert_close(found, wanted)
    for one, other in zip(*(torch.autograd.grad(y.sum(), x) for y in (found, wanted)), strict=True):
        torch.testing.assert_close(one, other)
