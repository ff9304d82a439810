"""Convolutions: paddings as torch has them, and attention that is a convolution, a max-pool, a shift."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import heedful
from heedful.nn import (
    Conv1d,
    Conv2d,
    RelativeAttention,
    RelativeAttention2d,
    RelativeMaxPool,
    convolution_from_relative_attention,
    relative_attention_from_convolution,
)
from heedful.nn.convolution import MODES, pad

double = torch.float64
trials = pytest.mark.parametrize("trial", range(20))


def any_conv(draw: random.Random, **options) -> Conv1d:
    groups = draw.choice([1, 1, 2, 3])
    options = {
        "stride": draw.randint(1, 3),
        "dilation": draw.randint(1, 3),
        "groups": groups,
        "bias": draw.random() < 0.5,
        "padding": draw.choice(["valid", "same", "full", 0, 1, 3]),
        "mode": draw.choice(list(MODES)),
        **options,
    }
    return Conv1d(groups * draw.randint(1, 3), groups * draw.randint(1, 3), draw.randint(1, 5), **options).to(
        double
    )


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


# Padding


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding, amount", [("valid", 0), ("same", 1), ("full", 2), (2, 2)])
def test_paddings_are_torchs(mode, padding, amount, seed):
    for own, theirs, shape in ((Conv1d, nn.Conv1d, (2, 3, 9)), (Conv2d, nn.Conv2d, (2, 3, 9, 8))):
        a = own(3, 4, 3, stride=2, padding=padding, mode=mode).to(double)
        b = theirs(3, 4, 3, stride=2, padding=amount, padding_mode=mode).to(double)
        b.load_state_dict(a.state_dict())
        x, y = (torch.randn(shape, dtype=double, requires_grad=True) for _ in range(2))
        y.data = x.data
        close(a(x), b(y))
        dims = len(shape) - 2
        by_hand = F.pad(x, [amount] * 2 * dims, MODES[mode])
        close(a(x), (F.conv1d, F.conv2d)[dims - 1](by_hand, a.weight, a.bias, stride=2))
        for found, wanted in zip(
            torch.autograd.grad(a(x).square().sum(), [x, *a.parameters()]),
            torch.autograd.grad(b(y).square().sum(), [y, *b.parameters()]),
            strict=True,
        ):
            close(found, wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_same_is_same(mode, kernel, dilation, seed):
    own = Conv1d(2, 2, kernel, dilation=dilation, mode=mode)
    theirs = nn.Conv1d(2, 2, kernel, dilation=dilation, padding="same", padding_mode=mode)
    theirs.load_state_dict(own.state_dict())
    x = torch.randn(1, 2, 20)
    torch.testing.assert_close(own(x), theirs(x))


@pytest.mark.parametrize("kernel", range(1, 6))
def test_full_is_while_the_kernel_touches(kernel, seed):
    """Every output of the full convolution depends on some input, and one more would not."""
    conv = Conv1d(1, 1, kernel, padding="full", bias=False)
    x = torch.randn(1, 1, 6, requires_grad=True)
    out = conv(x)
    assert out.shape[-1] == 6 + kernel - 1
    for t in range(out.shape[-1]):
        assert torch.autograd.grad(out[0, 0, t], x, retain_graph=True)[0].any()
    more = F.conv1d(F.pad(x, (kernel, kernel)), conv.weight)
    assert more[0, 0, 0] == 0 and more[0, 0, -1] == 0


@pytest.mark.parametrize("size", range(4, 12))
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_same_with_a_stride_rounds_up(size, stride):
    assert Conv1d(1, 1, 3, stride=stride)(torch.zeros(1, 1, size)).shape[-1] == -(-size // stride)


def test_pairs_may_differ(seed):
    conv = Conv2d(1, 1, (3, 5), stride=(1, 2), padding=("same", "full"), mode="circular")
    assert conv.pads == [(1, 1), (4, 4)]
    x = torch.randn(1, 1, 7, 9)
    by_hand = F.pad(x, (4, 4, 1, 1), "circular")
    torch.testing.assert_close(conv(x), F.conv2d(by_hand, conv.weight, conv.bias, stride=(1, 2)))
    conv = Conv2d(1, 1, (2, 4))  # even: one more after than before
    assert conv.pads == [(0, 1), (1, 2)]
    assert conv(x).shape == x.shape


def test_circular_convolution_commutes_with_shifts(seed):
    conv, x = Conv2d(2, 3, 3, mode="circular").to(double), torch.randn(1, 2, 6, 7, dtype=double)
    close(conv(x.roll((2, 3), (2, 3))), conv(x).roll((2, 3), (2, 3)))


@pytest.mark.parametrize(
    "options, says",
    [
        ({"padding": "circular"}, "padding='circular'.*mode='circular'"),
        ({"padding": "some"}, "'valid', 'same', 'full' or a number"),
        ({"padding": -1}, "0 or more"),
        ({"mode": "reflekt"}, "did you mean 'reflect'"),
        ({"kernel": 0}, "kernel=0.*1 or more"),
        ({"stride": 0}, "stride=0.*1 or more"),
        ({"groups": 2}, "groups=2.*must divide inputs=3"),
        ({"padding": (1, 1, 1)}, "takes one, or"),
    ],
)
@pytest.mark.parametrize("conv", [Conv1d, Conv2d])
def test_wrong_options_are_named(conv, options, says):
    with pytest.raises(ValueError, match=says):
        conv(**{"inputs": 3, "outputs": 4, "kernel": 3, **options})


def test_wrong_inputs_are_named():
    with pytest.raises(ValueError, match=r"\(1, 2, 8\); takes \(N, 3, T\)"):
        Conv1d(3, 4, 3)(torch.zeros(1, 2, 8))
    with pytest.raises(ValueError, match=r"takes \(N, 3, H, W\)"):
        Conv2d(3, 4, 3)(torch.zeros(1, 3, 8))
    with pytest.raises(ValueError, match="3 with its padding is 3, and the kernel needs 5"):
        Conv1d(3, 4, 3, dilation=2, padding="valid")(torch.zeros(1, 3, 3))
    with pytest.raises(ValueError, match="at most 1 can"):
        Conv1d(3, 4, 3, padding="full", mode="reflect")(torch.zeros(1, 3, 2))
    with pytest.raises(ValueError, match="pads has 3 dimensions, x only 2"):
        pad(torch.zeros(4, 4), [(1, 1)] * 3, "circular")
    with pytest.raises(ValueError, match="at most 3 can"):
        Conv1d(3, 4, 3, padding=4, mode="circular")(torch.zeros(1, 3, 3))


# Convolution and attention


@trials
@pytest.mark.parametrize("heads", ["taps", "kernels"])
def test_any_convolution_is_relative_attention(heads, trial, seed):
    conv = any_conv(random.Random(seed + trial))
    layer = relative_attention_from_convolution(conv, heads=heads)
    x = torch.randn(2, conv.in_channels, 17, dtype=double)
    close(layer(x), conv(x))
    back = convolution_from_relative_attention(layer)
    close(back(x), conv(x))
    assert back.groups % conv.groups == 0  # kernels with zeros may fall into more groups than they were given
    if back.groups == conv.groups:
        close(back.weight, conv.weight)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", ["same", "valid", 2])
def test_torchs_convolutions_too(mode, padding, seed):
    conv = nn.Conv1d(3, 4, 4, dilation=2, padding=padding, padding_mode=mode).to(double)
    layer = relative_attention_from_convolution(conv)
    x = torch.randn(2, 3, 15, dtype=double)
    close(layer(x), conv(x))


@trials
def test_relative_attention_is_a_convolution(trial, seed):
    """With scores of position only (heads may share places), or of a content of which one side is zero."""
    draw = random.Random(seed + trial)
    inputs, outputs, kernel = (draw.randint(1, 4) for _ in range(3))
    layer = RelativeAttention(
        inputs,
        outputs,
        kernel,
        heads=draw.randint(1, 4),
        content=draw.choice([0, 2]),
        stride=draw.randint(1, 2),
        dilation=draw.randint(1, 2),
        padding=draw.choice(["valid", "same", "full"]),
        mode=draw.choice(list(MODES)),
    ).to(double)
    if layer.content:
        nn.init.zeros_(draw.choice([layer.query, layer.key]))
    x = torch.randn(2, inputs, 12, dtype=double)
    close(convolution_from_relative_attention(layer)(x), layer(x))


def test_heads_on_their_own_channels_are_a_grouped_convolution(seed):
    """A multi-head layer whose heads keep to their channels: as many groups as heads."""
    heads, wide = 3, 2
    layer = RelativeAttention(heads * wide, heads * wide, 5, heads=heads).to(double)
    for head in range(heads):
        own = torch.zeros(heads * wide, dtype=torch.bool)
        own[head * wide : (head + 1) * wide] = True
        layer.weight.data[head].masked_fill_(~(own[:, None] & own), 0)
    conv = convolution_from_relative_attention(layer)
    assert conv.groups == heads
    x = torch.randn(1, heads * wide, 11, dtype=double)
    close(conv(x), layer(x))


def test_the_layer_is_attention(seed):
    """Against the formula: scores by content and position, softmax over the window, values through W."""
    layer = RelativeAttention(3, 4, 3, heads=2, content=5).to(double)
    x = torch.randn(1, 3, 8, dtype=double)
    expected = layer.bias[:, None].expand(4, 8).clone()
    seen = F.pad(x[0], (1, 1))
    for i in range(8):
        window = seen[:, i : i + 3]  # (inputs, kernel)
        for head in range(2):
            score = (layer.query[head] @ x[0, :, i]) @ (layer.key[head] @ window) / 5**0.5
            a = torch.softmax(score + layer.table[head], -1)
            expected[:, i] += layer.weight[head] @ (window @ a)
    close(layer(x)[0], expected)


@trials
def test_attention_in_the_plane_is_attention(seed, trial):
    """Against the formula, place by place; without content, or with a content of zeros, a convolution too."""
    draw = random.Random(seed + trial)
    inputs, outputs, kernel, heads = (draw.randint(1, 3) for _ in range(4))
    content, stride = draw.choice([0, 2]), draw.randint(1, 2)
    options = {"padding": draw.choice(["valid", "same", "full"]), "mode": draw.choice(list(MODES))}
    layer = RelativeAttention2d(
        inputs, outputs, kernel, heads=heads, content=content, stride=stride, **options
    )
    layer = layer.to(double)
    x = torch.randn(2, inputs, 7, 6, dtype=double)
    seen = pad(x, layer.pads, options["mode"])
    found = layer(x)
    for i in range(found.shape[2]):
        for j in range(found.shape[3]):
            window = seen[:, :, i * stride : i * stride + kernel, j * stride : j * stride + kernel].flatten(2)
            expected = layer.bias.expand(2, outputs).clone()
            for head in range(heads):
                score = layer.table[head].expand(2, -1)
                if content:
                    query = window[:, :, kernel**2 // 2] @ layer.query[head].T
                    score = score + torch.einsum("nd,ndm->nm", query, layer.key[head] @ window) / content**0.5
                heard = torch.einsum("nm,ncm->nc", score.softmax(-1), window)
                expected = expected + heard @ layer.weight[head].T
            close(found[:, :, i, j], expected)
    if content:
        nn.init.zeros_(layer.query)
        plain = RelativeAttention2d(inputs, outputs, kernel, heads=heads, stride=stride, **options).to(double)
        plain.load_state_dict(
            {name: t for name, t in layer.state_dict().items() if name not in ("query", "key")}
        )
        close(layer(x), plain(x))


def test_attention_in_the_plane_says_what_it_takes():
    layer = RelativeAttention2d(3, 4, 5, padding="valid")
    with pytest.raises(ValueError, match=r"takes \(N, 3, H, W\)"):
        layer(torch.zeros(1, 2, 8, 8))
    with pytest.raises(ValueError, match="needs 5 places"):
        layer(torch.zeros(1, 3, 4, 8))


def test_content_is_no_convolution():
    with pytest.raises(ValueError, match="by what is there"):
        convolution_from_relative_attention(RelativeAttention(2, 2, 3, content=4))
    with pytest.raises(TypeError, match="got Conv1d"):
        convolution_from_relative_attention(Conv1d(2, 2, 3))
    for other in (nn.Conv2d(2, 2, 3), nn.ConvTranspose1d(2, 2, 3)):
        with pytest.raises(TypeError, match=f"got {type(other).__name__}"):
            relative_attention_from_convolution(other)


def test_identity_and_shift(seed):
    """One head, one place: the identity, or everything moved by two."""
    x = torch.randn(2, 3, 9, dtype=double)
    for place, moved in ((2, x), (0, F.pad(x[..., :-2], (2, 0))), (4, F.pad(x[..., 2:], (0, 2)))):
        layer = RelativeAttention(3, 3, 5, bias=False).to(double)
        layer.table.data = torch.full((1, 5), -torch.inf, dtype=double)
        layer.table.data[0, place] = 0
        layer.weight.data = torch.eye(3, dtype=double)[None]
        assert torch.equal(layer(x), moved)


def test_any_permutation_is_attention(seed):
    """Not relative: each place asks for another by name."""
    x, order = torch.randn(9, 3, dtype=double), torch.randperm(9)
    names = torch.eye(9, dtype=double)
    out = heedful.attend(names[order], names, x, similarity=heedful.Argmax())
    assert torch.equal(out, x[order])


def test_silent_heads_say_nothing(seed):
    conv = nn.Conv1d(2, 2, 3).to(double)
    nn.init.zeros_(conv.weight)
    x = torch.randn(1, 2, 6, dtype=double)
    for heads in ("taps", "kernels"):
        layer = relative_attention_from_convolution(conv, heads=heads)
        close(layer(x), conv(x))
        close(convolution_from_relative_attention(layer)(x), conv(x))


def test_table_learns(seed):
    """Gradients reach a head that shares its places; −∞ stays −∞."""
    layer = RelativeAttention(2, 2, 3, heads=2).to(double)
    layer.table.data[0, 1] = -torch.inf
    layer(torch.randn(1, 2, 6, dtype=double)).square().sum().backward()
    assert layer.table.grad.isfinite().all() and layer.table.grad[0, 1] == 0
    assert (layer.table.grad[1] != 0).all()


# Max-pooling


@trials
def test_the_limit_is_max_pooling(trial, seed):
    draw = random.Random(seed + trial)
    kernel = draw.randint(1, 5)
    options = {
        "stride": draw.choice([None, 1, 2, 3]),
        "dilation": draw.randint(1, 2),
        "padding": draw.randint(0, kernel // 2),
    }
    x = torch.randn(2, 3, 16, dtype=double)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    own, theirs = RelativeMaxPool(kernel, **options)(a), nn.MaxPool1d(kernel, **options)(b)
    assert torch.equal(own, theirs)
    grad = torch.randn_like(own)
    own.backward(grad), theirs.backward(grad)
    assert torch.allclose(a.grad, b.grad, rtol=1e-12, atol=1e-12)


def test_ties_are_the_same_maximum():
    x = torch.tensor([[[0.0, 0.0, 1.0, 1.0, -2.0, -2.0]]])
    assert RelativeMaxPool(2)(x).flatten().tolist() == [0, 1, -2]


def test_softmax_pooling_tends_to_the_maximum(seed):
    x = torch.randn(2, 3, 30, dtype=double)
    top = RelativeMaxPool(4)(x)
    last = None
    for beta in (0.5, 1.0, 2.0, 8.0, 64.0, 1024.0):
        short = top - RelativeMaxPool(4, beta=beta)(x)
        assert (short >= -1e-12).all() and (short <= torch.tensor(4.0).log() / beta).all()
        assert last is None or (short <= last + 1e-12).all()
        last = short
    torch.testing.assert_close(RelativeMaxPool(4, beta=0.0)(x), F.avg_pool1d(x, 4))


def test_wrong_pools_are_named():
    with pytest.raises(ValueError, match="at most half of kernel=3"):
        RelativeMaxPool(3, padding=2)
    with pytest.raises(ValueError, match="0 or more, or None"):
        RelativeMaxPool(3, beta=-1.0)
    with pytest.raises(ValueError, match=r"T ≥ 3"):
        RelativeMaxPool(3)(torch.zeros(1, 2, 2))
