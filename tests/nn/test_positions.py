"""Positions that learn are the operator's; those added to tokens, their formulas; patches, a convolution."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from heedful import Alibi, Causal, EluKernel, Relative, T5Buckets, attend, explain
from heedful.nn import (
    AlibiPosition,
    LearnedPositions,
    PatchEmbed,
    RelativePosition,
    SinusoidalPositions,
    T5Position,
    patchify,
    unpatchify,
)

HEADS = 3
PAIRS = {
    "relative": (lambda: RelativePosition(HEADS, 4), lambda p: Relative(p.entries, clamp=True)),
    "t5": (lambda: T5Position(HEADS, 16), lambda p: T5Buckets(p.entries)),
    "t5, the past only": (
        lambda: T5Position(HEADS, 8, bidirectional=False, max_distance=20),
        lambda p: T5Buckets(p.entries, bidirectional=False, max_distance=20),
    ),
    "alibi": (lambda: AlibiPosition(HEADS), lambda p: Alibi(p.slopes)),
}


def filled(make):
    position = make().double()
    for parameter in position.parameters():
        torch.nn.init.normal_(parameter)
    return position


@pytest.mark.parametrize("name", PAIRS)
def test_they_are_the_operators_with_gradients(name, seed):
    make, plain = PAIRS[name]
    learned = filled(make)
    q, k, v = torch.randn(3, 2, HEADS, 11, 4, dtype=torch.float64)
    out = attend(q, k, v, position=learned)
    wanted = attend(q, k, v, position=plain(learned), strategy="reference")
    torch.testing.assert_close(out, wanted)
    gradient = torch.randn_like(out)
    found = torch.autograd.grad(out, list(learned.parameters()), gradient)
    expected = torch.autograd.grad(wanted, list(learned.parameters()), gradient)
    torch.testing.assert_close(found, expected)
    assert found[0].abs().sum() > 0


@pytest.mark.parametrize("name", PAIRS)
def test_called_they_give_the_bias_they_add(name, seed):
    learned = filled(PAIRS[name][0])
    q, k = torch.randn(1, HEADS, 5, 4, dtype=torch.float64), torch.randn(1, HEADS, 8, 4, dtype=torch.float64)
    bias = learned(5, 8)
    assert bias.shape == (HEADS, 5, 8)
    weights = (q @ k.mT / 2 + bias).softmax(-1)
    eye = torch.eye(8, dtype=torch.float64).expand(1, HEADS, 8, 8)
    torch.testing.assert_close(attend(q, k, eye, position=learned), weights)
    assert learned(6).shape == (HEADS, 6, 6)


def test_they_start_as_nothing_or_as_published():
    assert not RelativePosition(HEADS, 4)(9).any() and not T5Position(HEADS)(9).any()
    torch.testing.assert_close(AlibiPosition(8).slopes, 2.0 ** -torch.arange(1.0, 9))


def test_the_planner_knows_they_learn():
    q = torch.randn(1, HEADS, 6, 4)
    position = RelativePosition(HEADS, 4)
    assert explain(q, q, q, position=position).problem.gradient
    assert not explain(q, q, q, position=position.requires_grad_(False)).problem.gradient


def test_alibi_that_learns_still_scans():
    q = torch.randn(1, HEADS, 64, 4)
    call = {"similarity": EluKernel(), "neighbors": Causal(), "position": AlibiPosition(HEADS)}
    scanned, wanted = (attend(q, q, q, **call, strategy=way) for way in ("scan", "reference"))
    torch.testing.assert_close(scanned, wanted, rtol=1e-4, atol=1e-5)
    slopes = call["position"].slopes
    found, expected = (torch.autograd.grad(out.square().sum(), slopes)[0] for out in (scanned, wanted))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_sinusoids(seed):
    layer = SinusoidalPositions(6, base=100.0)
    out = layer(torch.zeros(5, 6, dtype=torch.float64), start=3)
    for i in range(5):
        for m in range(3):
            angle = (i + 3) * 100 ** (-2 * m / 6)
            assert out[i, 2 * m].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert out[i, 2 * m + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


@pytest.mark.parametrize("layer", [LearnedPositions(9, 6), SinusoidalPositions(6)], ids=str)
def test_pieces_get_the_positions_they_stand_at(layer, seed):
    x = torch.randn(2, 9, 6)
    pieces = [layer(x[:, a:b], start=a) for a, b in ((0, 4), (4, 5), (5, 9))]
    torch.testing.assert_close(torch.cat(pieces, 1), layer(x), rtol=0, atol=0)


def test_patches_are_a_convolution(seed):
    layer = PatchEmbed((12, 8), (4, 2), 3, 16)
    images = torch.randn(2, 3, 12, 8)
    weight = layer.project.weight.view(16, 3, 4, 2)
    wanted = F.conv2d(images, weight, layer.project.bias, stride=(4, 2)).flatten(2).mT
    torch.testing.assert_close(layer(images), wanted, rtol=1e-4, atol=1e-5)
    assert layer.grid == (3, 4) and layer.count == 12


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_patches_go_back_together(lead, seed):
    images = torch.randn(*lead, 3, 12, 8)
    patches = patchify(images, (4, 2))
    assert patches.shape == (*lead, 12, 24)
    assert torch.equal(unpatchify(patches, (12, 8), (4, 2)), images)
    first = patches[..., 5, :].unflatten(-1, (3, 4, 2))  # second row, second column
    assert torch.equal(first, images[..., 4:8, 2:4])


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: RelativePosition(0, 4), "heads=0"),
        (lambda: RelativePosition(4, 1.5), "reach=1.5"),
        (lambda: T5Position(4, 2), "buckets"),
        (lambda: SinusoidalPositions(7), "dim=7.*even"),
        (lambda: LearnedPositions(4, 8)(torch.zeros(1, 5, 8)), "positions up to 4, but has 4"),
        (lambda: LearnedPositions(4, 8)(torch.zeros(1, 2, 8), start=3), "positions up to 4"),
        (lambda: attend(*torch.randn(3, 1, 5, 9, 4), position=RelativePosition(4, 2)), "4 rows for 5 heads"),
        (lambda: PatchEmbed(32, 5, 3, 8), "image_size=32.*patch=5"),
        (lambda: PatchEmbed(32, 0, 3, 8), "patch=0"),
        (lambda: PatchEmbed(32, 4, 3, 8)(torch.zeros(1, 3, 32, 28)), r"\(1, 3, 32, 28\).*3, 32, 32"),
        (lambda: patchify(torch.zeros(1, 3, 10, 10), 4), "10×10.*4×4"),
        (lambda: patchify(torch.zeros(10, 10), 5), r"\(10, 10\)"),
        (lambda: unpatchify(torch.zeros(1, 3, 48), 8, 4), "3 patches of 48"),
    ],
)
def test_what_is_wrong_is_said(call, words):
    with pytest.raises(ValueError, match=words):
        call()
