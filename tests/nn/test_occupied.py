"""Convolutions of what is there: the numbers and gradients of the whole image, in any padding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from heedful.models import ConvNet
from heedful.nn import Conv2d, Occupied

double = torch.float64


def some_pixels(seed: int, side: int = 14) -> torch.Tensor:
    """Images with a few pixels, some of them at the edge; the last image is black."""
    draw = torch.Generator().manual_seed(seed)
    images = torch.randn(4, 3, side, side, generator=draw, dtype=double)
    images[torch.rand(4, 1, side, side, generator=draw).expand_as(images) < 0.93] = 0
    images[0, :, 0, :3] = images[1, :, -1, -1:] = 1.0
    images[3] = 0
    return images


def compare(layers: nn.Module, whole: torch.Tensor, occupied: torch.Tensor) -> None:
    torch.testing.assert_close(occupied, whole, rtol=1e-12, atol=1e-12)
    weigh = torch.randn_like(whole)
    ours, theirs = (
        torch.autograd.grad((out * weigh).sum(), list(layers.parameters())) for out in (occupied, whole)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("padding", ["valid", "same", "full", "circular", "reflect", "replicate"])
@pytest.mark.parametrize("kind", [ConvNet.net1, ConvNet.net2])
def test_the_nets_of_the_padding_study(kind, padding, seed):
    net, images = kind(padding).to(double), some_pixels(seed, 32)
    compare(net, net(images), net(Occupied(images, net.features)))


@pytest.mark.parametrize("kernel, stride", [(1, 1), (2, 2), (3, 1), (3, 3), ((3, 5), (1, 2))])
def test_other_kernels_and_strides(kernel, stride, seed):
    layers = nn.Sequential(
        Conv2d(3, 5, kernel, stride=stride, bias=False, padding="full"),
        nn.ReLU(),
        Conv2d(5, 4, kernel, stride=stride, bias=False, padding="valid"),
    ).to(double)
    images = some_pixels(seed)
    compare(layers, layers(images), Occupied(images, layers).through(layers))


def test_black_images_stay_black(seed):
    layers = nn.Sequential(Conv2d(3, 5, 3, bias=False), nn.ReLU(), Conv2d(5, 2, 3, bias=False)).to(double)
    images = torch.zeros(2, 3, 6, 6, dtype=double)
    compare(layers, layers(images), Occupied(images, layers).through(layers))


def test_stacks_of_nets(seed):
    nets = [ConvNet.net1("full").to(double) for _ in range(3)]
    images = some_pixels(seed, 32)
    occupied = Occupied(images, nets[0].features)
    weights, buffers = torch.func.stack_module_state(nets)

    def loss(weights, x):
        return torch.func.functional_call(nets[0], (weights, buffers), (x,)).square().sum()

    found = torch.vmap(torch.func.grad(lambda w: loss(w, occupied)))(weights)
    for place in range(3):
        alone = torch.func.grad(lambda w: loss(w, images))({n: w[place] for n, w in weights.items()})
        for name, value in alone.items():
            torch.testing.assert_close(found[name][place], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "layer",
    [
        Conv2d(3, 4, 3),
        Conv2d(3, 3, 3, groups=3, bias=False),
        Conv2d(3, 4, 3, dilation=2, bias=False),
        nn.GELU(),
    ],
)
def test_what_would_not_stay_zero_is_refused(layer):
    with pytest.raises(ValueError, match="takes Conv2d without bias, groups and dilation, and ReLU"):
        Occupied(torch.zeros(1, 3, 8, 8), [layer])
