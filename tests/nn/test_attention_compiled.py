"""A compiled Attention: its choices are one word to the compiler, and the word follows them."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from heedful import Alibi, Causal, Everyone, Global, Mask, Polynomial, Rotary, Softmax, Window
from heedful.attention import settled
from heedful.nn import Attention, RelativePosition

DIM, HEADS = 16, 2


def close(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def compiled(layer, **options):
    torch.compiler.reset()
    return torch.compile(layer, fullgraph=True, backend="eager", **options)


def attention(**options):
    return Attention(DIM, HEADS, **options).double()


CHOICES = [
    {},
    {"neighbors": "causal"},
    {"neighbors": "causal", "kv_heads": 1},
    {"neighbors": "causal", "position": Rotary()},
    {"neighbors": "causal", "position": Alibi()},
    {"neighbors": "causal & window(3)", "position": Rotary(interleaved=False, dims=4)},
    {"neighbors": "window(2) | causal", "similarity": Softmax(0.3)},
    {"neighbors": "causal", "similarity": "polynomial(degree=2)"},
    {"similarity": "argmax"},
    {"neighbors": "causal", "similarity": "elu"},
    {"neighbors": "causal", "learned_scale": True},
    {"neighbors": "global(0) | window(1)"},
    {"position": RelativePosition(HEADS, 40)},
]


@pytest.mark.parametrize("options", CHOICES, ids=str)
def test_same_as_without_the_compiler(options, seed):
    layer = attention(**options)
    run = compiled(layer)
    for length, batch in ((6, 2), (9, 3), (21, 2)):
        x = torch.randn(batch, length, DIM, dtype=torch.float64, requires_grad=True)
        out, expected = run(x), layer(x)
        close(out, expected)
        weights = [x, *layer.parameters()]
        found, wanted = (torch.autograd.grad(y.square().sum(), weights) for y in (out, expected))
        close(found, wanted)


@pytest.mark.parametrize("neighbors", ["everyone", "causal"])
def test_other_shapes(neighbors, seed):
    """A context of another length, leading dimensions that broadcast or are not there, nobody."""
    layer = attention(neighbors=neighbors)
    run = compiled(layer, dynamic=False)
    x = torch.randn(2, 5, DIM, dtype=torch.float64)
    for context in (torch.randn(2, 7, DIM), torch.randn(2, 5, DIM), torch.randn(1, 8, DIM)):
        close(run(x, context.double()), layer(x, context.double()))
    for other in (x[0], x.expand(3, 2, 5, DIM), x[:, :0], x[:0]):
        close(run(other), layer(other))
    mask = Mask(torch.rand(5, 5) < 0.7)
    close(run(x, neighbors=mask), layer(x, neighbors=mask))


@pytest.mark.parametrize(
    "name, value",
    [
        ("neighbors", Everyone()),
        ("neighbors", Window(1)),
        ("neighbors", Global([0, 4])),
        ("neighbors", Causal() & Window(2)),
        ("position", None),
        ("position", Rotary(100.0)),
        ("position", Rotary(interleaved=False)),
        ("position", Alibi()),
        ("position", RelativePosition(HEADS, 6).double()),
        ("_similarity", Softmax(2.0)),
        ("_similarity", Softmax(torch.tensor([0.1, 2.0], dtype=torch.float64))),
        ("_similarity", Polynomial(4)),
        ("scale", nn.Parameter(torch.tensor([0.1, 2.0], dtype=torch.float64))),
    ],
    ids=str,
)
def test_what_is_changed_is_heard(name, value, seed):
    layer = attention(neighbors="causal", position=Rotary())
    run, x = compiled(layer), torch.randn(2, 6, DIM, dtype=torch.float64)
    before = run(x)
    setattr(layer, name, value)
    close(run(x), layer(x))
    assert not torch.allclose(run(x), before)


def test_dropout_and_mode_are_heard(seed):
    layer = attention(neighbors="causal", dropout=0.5)
    run, x = compiled(layer), torch.randn(2, 6, DIM, dtype=torch.float64)
    assert not torch.equal(run(x), run(x))
    layer.eval()
    close(run(x), layer(x))
    layer.train().dropout = 0.0
    close(run(x), layer(x))


def test_a_layer_from_elsewhere(seed, monkeypatch):
    """In another process no word has been said yet."""
    layer = attention(neighbors="causal", position=Rotary())
    written = pickle.dumps(layer)
    monkeypatch.setattr(settled, "_SETTLED", {})
    read, x = pickle.loads(written), torch.randn(2, 6, DIM, dtype=torch.float64)
    close(compiled(read)(x), layer(x))


def test_only_values_have_a_word():
    def word(**options):
        return attention(**options)._word

    assert word() == word(similarity=Softmax(), neighbors=Everyone())
    assert len({word(similarity=Softmax(scale)) for scale in (None, 1, 2, 0.5)}) == 4
    assert word(similarity=Softmax(torch.tensor(1.0))) is None
    assert word(learned_scale=True) is None
    assert word(neighbors=Mask(torch.ones(3, 3, dtype=torch.bool)) & Causal()) is None
    assert word(neighbors="segments(2, 3)") is None  # fits one length only

    class Softmax2(Softmax):
        def resolved(self, dim):
            return 2 * super().resolved(dim)

    assert word(similarity=Softmax2()) is None
