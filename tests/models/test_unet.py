"""UNet: the original's numbers, skips that cost nothing, and tiles that join without a seam."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from heedful.models import UNet
from heedful.models.unet import _mirrored

ORIGINAL = [64, 128, 256, 512, 1024]


def weights_of_the_original(channels, classes, widths=ORIGINAL):
    """Counted by hand: 3 × 3 convolutions in pairs, 2 × 2 transposed ones, 1 × 1 at the end, all biased."""

    def twice(a, b):
        return 9 * a * b + b + 9 * b * b + b

    total = sum(twice(a, b) for a, b in zip([channels, *widths], widths, strict=False))
    total += sum(4 * 2 * w * w + w + twice(2 * w, w) for w in widths[:-1])
    return total + widths[0] * classes + classes


def test_the_originals_size():
    counted = UNet(1, 2, widths=ORIGINAL, padding="valid", norm="none").parameter_count
    assert counted == weights_of_the_original(1, 2) == 31_030_658
    assert UNet(1, 1, widths=ORIGINAL, norm="none").parameter_count == 31_030_593  # as others count it
    assert UNet(3, 1, widths=ORIGINAL).parameter_count == 31_037_633  # with batch norm in place of biases


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("widths", [[32, 64, 128, 256, 512], [8, 16], [6, 10, 14], [64, 64, 64]])
def test_skips_are_free(norm, widths):
    """Without skips as many weights, to one in a hundred (norms and biases of the wider layers differ)."""
    with_skips, without = (
        UNet(1, 2, widths=widths, norm=norm, skips=s).parameter_count for s in (True, False)
    )
    assert abs(with_skips - without) / with_skips < 0.01


def test_the_original_forms_sizes(seed):
    """572 × 572 pixels give 388 × 388 logits."""
    net = UNet(1, 2, widths=[2, 2, 2, 2, 2], padding="valid", norm="none")
    assert net(torch.randn(1, 1, 572, 572)).shape == (1, 2, 388, 388)
    assert net.margin == 92


@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_margin_is_what_a_pixel_hears(levels, seed):
    """In a valid net the first logit hears the very first pixel, the last one the very last."""
    net = UNet(1, 1, widths=[2] * (levels + 1), padding="valid", norm="none").double()
    for parameter in net.parameters():
        nn.init.constant_(parameter, 0.1)  # nothing cancels, no ReLU is shut, order is kept
    side = 4 % net.scale or net.scale
    size = side + 2 * net.margin
    rising = torch.arange(1.0, size * size + 1, dtype=torch.double).view(1, 1, size, size)
    for x, place in ((rising.flip(2, 3), 0), (rising, -1)):  # the pixel in question is its pool's maximum
        x.requires_grad_()
        out = net(x)
        assert out.shape == (1, 1, side, side)
        assert torch.autograd.grad(out[0, 0, place, place], x)[0][0, 0, place, place] > 0


@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_forward_is_the_picture(skips, padding, seed):
    """Level by level, written out for two levels."""
    net = UNet(2, 3, widths=[4, 6], padding=padding, skips=skips, norm="none").double()
    x = torch.randn(1, 2, 20, 24, dtype=torch.double)
    pad = 1 if padding == "same" else 0

    def twice(block, x):
        for layer in (block[0], block[3]):
            x = F.relu(F.conv2d(x, layer.weight, layer.bias, padding=pad))
        return x

    top = twice(net.down[0], x)
    bottom = twice(net.down[1], F.max_pool2d(top, 2))
    up = F.conv_transpose2d(bottom, net.rise[0].weight, net.rise[0].bias, stride=2)
    if skips:
        cut = (top.shape[-1] - up.shape[-1]) // 2
        up = torch.cat([top[..., cut : top.shape[-2] - cut, cut : top.shape[-1] - cut], up], 1)
    expected = F.conv2d(twice(net.up[0], up), net.head.weight, net.head.bias)
    torch.testing.assert_close(net(x), expected)


def test_without_skips_the_bottom_is_all_there_is(seed):
    """Silence the lowest level: with skips the image still comes through, without it does not."""
    x, y = torch.randn(2, 1, 1, 16, 16)
    for skips in (True, False):
        net = UNet(1, 2, widths=[4, 8, 16], skips=skips, norm="none")
        for parameter in net.down[-1].parameters():
            nn.init.zeros_(parameter)
        assert torch.equal(net(x), net(y)) != skips


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("widths", [[3, 4], [3, 4, 4], [2, 3, 4, 4]])
def test_tiles_join_to_one_pass(widths, padding, norm, seed):
    net = UNet(2, 3, widths=widths, padding=padding, norm=norm).double()
    side = net.fitting(9) + 2 * net.margin
    net(torch.randn(2, 2, side, side, dtype=torch.double))  # moves running averages
    image = torch.randn(1, 2, 37, 50, dtype=torch.double)
    whole = net.predict(image)
    assert whole.shape == (1, 3, 37, 50)
    for tile in (1, 7, 16, 23, 64):
        torch.testing.assert_close(net.predict(image, tile=tile), whole, rtol=1e-10, atol=1e-10)


def test_tiles_see_all_their_logits_hear(seed):
    """A pixel less on a side, and a tile of a net that pads would tell from one pass."""
    net = UNet(1, 1, widths=[2, 3, 3], norm="none").double()
    for parameter in net.parameters():
        nn.init.uniform_(parameter, 0.1, 1)  # no ReLU is closed
    rising = torch.arange(160 * 4, dtype=torch.double).view(1, 1, 4, 160)
    for image in (rising, rising.flip(3)):
        image.requires_grad_()
        out = net(image)
        for place in range(80, 84):
            heard = torch.autograd.grad(out[0, 0, 2, place], image, retain_graph=True)[0][0, 0, 2].nonzero()
            start = place - place % net.scale
            assert heard.min() >= start - 6 * net.scale
            assert heard.max() < start + net.scale + 6 * net.scale


def test_one_pass_is_forward_on_the_mirrored_image(seed):
    net = UNet(1, 2, widths=[3, 4], padding="valid", norm="none").double()
    side = net.fitting(20)
    image = torch.randn(1, 1, side, side, dtype=torch.double)
    expected = net(F.pad(image, [net.margin] * 4, "reflect"))
    torch.testing.assert_close(net.predict(image), expected)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("size", [(1, 1), (3, 40), (33, 17)])
def test_predict_takes_any_size(padding, size, seed):
    net = UNet(1, 2, widths=[2, 3, 4], padding=padding).train()
    image = torch.randn(1, *size)
    out = net.predict(image)
    assert out.shape == (2, *size) and out.isfinite().all() and not out.requires_grad
    assert net.training
    torch.testing.assert_close(net.predict(image[None])[0], out)


def test_predict_leaves_running_averages_alone(seed):
    net = UNet(1, 2, widths=[2, 3]).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    net.predict(torch.randn(1, 9, 9))
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_mirrors():
    x = torch.arange(4)[None]
    assert _mirrored(x, 1, -5, 8)[0].tolist() == [1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1]
    assert torch.equal(_mirrored(x, 1, -3, 7)[0], F.pad(x[None].float(), (3, 3), "reflect")[0, 0].long())
    assert _mirrored(torch.tensor([[7]]), 1, -2, 3)[0].tolist() == [7] * 5


@pytest.mark.parametrize(
    "options, says",
    [
        ({"padding": "full"}, "'same', 'valid'"),
        ({"norm": "bach"}, "did you mean 'batch'"),
        ({"widths": [4]}, "widths=1"),
        ({"classes": 0}, "classes=0"),
    ],
)
def test_wrong_options_are_named(options, says):
    with pytest.raises(ValueError, match=says):
        UNet(**options)


def test_wrong_images_are_named():
    net = UNet(1, 2, widths=[2, 3, 4])
    with pytest.raises(ValueError, match=r"takes \(N, 1, H, W\)"):
        net(torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match=r"8 × 9 does not halve 2 times; make 9 12"):
        net(torch.zeros(1, 1, 8, 9))
    valid = UNet(1, 2, widths=[2, 3, 4], padding="valid")
    with pytest.raises(ValueError, match="make 40 44"):
        valid(torch.zeros(1, 1, 40, 44))
    with pytest.raises(ValueError, match="tile=0"):
        valid.predict(torch.zeros(1, 8, 8), tile=0)
