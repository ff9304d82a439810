"""ResNet and PlainNet: the paper's sizes to the parameter, and what a shortcut is."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from heedful.models import PlainNet, ResNet


@pytest.mark.parametrize(
    "depth, count", [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018), (110, 1_727_962)]
)
def test_published_sizes(depth, count):
    assert ResNet(depth).parameter_count == PlainNet(depth).parameter_count == count
    convs = [m for m in ResNet(depth).modules() if isinstance(m, nn.Conv2d)]
    assert len(convs) + 1 == depth  # and the linear layer


def test_projections_cost_parameters():
    """Two shortcuts change shapes, 16 → 32 and 32 → 64, each with a norm."""
    assert ResNet(20, shortcut="B").parameter_count == 269_722 + (16 * 32 + 64) + (32 * 64 + 128)


@pytest.mark.parametrize("norm", ["batch", "instance", "group", "layer"])
def test_norms_by_name(norm, seed):
    net = ResNet(8, norm=norm)
    assert net.parameter_count == ResNet(8).parameter_count
    assert net(torch.randn(2, 3, 16, 16)).shape == (2, 10)


def test_without_norm_convolutions_have_biases():
    net = ResNet(20, norm="none")
    biases = sum(m.out_channels for m in net.modules() if isinstance(m, nn.Conv2d))
    assert net.parameter_count == 269_722 - biases  # one number a channel, where the norm had two


def test_silent_branches_leave_the_shortcut(seed):
    """With the second norm of each block at zero, a ResNet carries its input through, a PlainNet loses it."""
    x = torch.randn(2, 3, 8, 8)
    for make, carried in ((ResNet, True), (PlainNet, False)):
        net = make(8).eval()
        for block in net.blocks:
            nn.init.zeros_(block.norm2.weight)
        first = torch.relu(net.norm(net.conv(x)))
        out = net.blocks(first)
        assert out.shape == (2, 64, 2, 2)
        if carried:
            assert torch.equal(out[:, :16], first[:, :, ::4, ::4]) and not out[:, 16:].any()
        else:
            assert not out.any()


@pytest.mark.parametrize("init, gain", [("he", 2), ("xavier", None)])
def test_weights_begin_as_said(init, gain, seed):
    net = ResNet(20, init=init)
    weight = net.blocks[-1].conv2.weight  # 64 → 64, 3 × 3: 36,864 draws
    inside = 64 * 9
    expected = math.sqrt(gain / inside if gain else 2 / (inside + inside))
    assert weight.std().item() == pytest.approx(expected, rel=0.05)
    assert abs(weight.mean().item()) < 5 * expected / math.sqrt(weight.numel())


def test_signal_keeps_its_size_with_he(seed):
    """Without norms and shortcuts He's variance carries the signal through 20 layers; Xavier's loses it."""
    x = torch.randn(8, 3, 16, 16)
    size = {}
    for init in ("he", "xavier"):
        net = PlainNet(20, norm="none", init=init)
        size[init] = net.blocks(torch.relu(net.conv(x))).std().item()
    assert size["xavier"] < size["he"] / 50


def test_other_shapes(seed):
    net = ResNet(14, channels=1, classes=4, widths=[8, 16])  # two stages: 4n + 2
    assert len(net.blocks) == 6
    assert net(torch.randn(2, 1, 9, 13)).shape == (2, 4)


@pytest.mark.parametrize(
    "options, says",
    [
        ({"depth": 21}, "takes 6n \\+ 2 for 3 widths, as 20"),
        ({"depth": 2}, "as 8"),
        ({"shortcut": "C"}, "'A', 'B'"),
        ({"norm": "batches"}, "did you mean 'batch'"),
        ({"init": "glorot"}, "'he', 'xavier'"),
    ],
)
def test_wrong_options_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        ResNet(**options)
