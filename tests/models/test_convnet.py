"""ConvNet: the nets of the studies, to the parameter, and what their paddings and heads know of position."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heedful.models import ConvNet
from heedful.models.convnet import PADDINGS


@pytest.mark.parametrize(
    "padding, side, mode, beyond",
    [
        ("valid", 2, "constant", 0),
        ("same", 4, "constant", 1),
        ("full", 6, "constant", 2),
        ("circular", 6, "circular", 2),
        ("reflect", 6, "reflect", 2),
        ("replicate", 6, "replicate", 2),
    ],
)
def test_nets_of_the_padding_study(padding, side, mode, beyond, seed):
    one, two = ConvNet.net1(padding), ConvNet.net2(padding)
    assert one.parameter_count == 65_506
    assert two.parameter_count == {2: 81_954, 4: 131_106, 6: 213_026}[side]
    x = torch.randn(2, 3, 32, 32)
    assert one.features(x).shape[2:] == (side, side)
    convs = [layer for layer in one.features if isinstance(layer, nn.Conv2d)]
    features = x
    for conv, stride in zip(convs, (1, 2, 2, 2), strict=True):
        features = F.relu(F.conv2d(F.pad(features, [beyond] * 4, mode), conv.weight, stride=stride))
    expected = F.linear(features.flatten(2).max(-1).values, one.head[0].weight, one.head[0].bias)
    torch.testing.assert_close(one(x), expected)


def test_net2_has_no_activation_in_its_head():
    assert [type(layer) for layer in ConvNet.net2().head] == [nn.Linear, nn.Linear]


def test_net_of_the_rotation_study(seed):
    net = ConvNet.rotation()
    assert net.parameter_count == 122_570
    kinds = [nn.Conv2d, nn.ReLU, nn.MaxPool2d] * 3 + [nn.Linear, nn.ReLU, nn.Linear]
    for layer, kind in zip([*net.features, *net.head], kinds, strict=True):
        assert isinstance(layer, kind)
    assert net.head[0].in_features == 1024
    assert ConvNet.rotation(channels=1, size=8).head[0].in_features == 64


def test_only_circular_padding_keeps_a_shift_of_the_stride(seed):
    """Net1 without strides forgets where: exactly so around a torus, not with zeros at the edge."""
    x = torch.randn(1, 3, 16, 16, dtype=torch.float64)
    moved = x.roll((3, 5), (2, 3))

    def differs(**options):
        net = ConvNet(3, 2, widths=[8, 8], halve=False, head="max", **options).double()
        return (net(x) - net(moved)).abs().max().item()

    assert differs(padding="same", mode="circular") < 1e-12
    assert differs(padding="same") > 1e-6
    net = ConvNet(3, 2, widths=[8], halve=False, head="flatten", size=16, mode="circular").double()
    assert (net(x) - net(moved)).abs().max() > 1e-6


@pytest.mark.parametrize("head", ["max", "mean"])
def test_any_size_where_places_are_pooled(head, seed):
    net = ConvNet(1, 4, widths=[4, 4], head=head)
    for size in ((8, 8), (9, 30), (5, 4)):
        assert net(torch.randn(2, 1, *size)).shape == (2, 4)


def test_images_need_not_be_square(seed):
    net = ConvNet(1, 4, widths=[4, 4], head="flatten", size=(12, 20))
    assert net(torch.randn(2, 1, 12, 20)).shape == (2, 4)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"head": "avg"}, "'max', 'mean', 'flatten'"),
        ({"head": "flatten"}, "size=…"),
        ({"head": "flatten", "size": 4}, "nothing is left"),
        ({"strides": [1, 2]}, "2 strides for 3 widths"),
        ({"size": (1, 2, 3)}, "height and width"),
        ({"widths": []}, "widths=0"),
    ],
)
def test_wrong_options_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        ConvNet(3, 2, **options)


def test_wrong_images_are_named():
    with pytest.raises(ValueError, match=r"size=\(32, 32\)"):
        ConvNet.net2()(torch.zeros(1, 3, 30, 32))
    with pytest.raises(ValueError, match="did you mean 'circular'"):
        ConvNet.net1("circlar")
    assert set(PADDINGS) == {"valid", "same", "full", "circular", "reflect", "replicate"}
