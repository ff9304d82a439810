"""The U-Net study: nets of equal size, squares whose masks go with them, an order that can be taken up."""

from __future__ import annotations

import pytest
import torch

from heedful import data, lab
from heedful.studies.unet import Squares, UNetSkips, _sections, predicted, scores


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("profile", lab.PROFILES)
def test_with_and_without_skips_have_as_many_weights(padding, profile):
    changes = {k: v for k, v in getattr(UNetSkips, profile).items() if k != "axes"}
    one, other = (
        UNetSkips(padding=padding, skips=skips, **changes).model().parameter_count
        for skips in ("with", "without")
    )
    assert abs(one - other) < 0.01 * one


@pytest.mark.parametrize("padding", ["same", "valid"])
def test_squares_are_of_the_image_and_its_mask(padding, seed):
    """Where image and mask hold the same numbers, so do each square and, in its middle, its mask."""
    net = UNetSkips(padding=padding, width=2, levels=3).model()
    masks = torch.randint(1000, (5, 90, 80))
    squares = Squares(masks[:, None].float(), masks, net, sides=(20, 60), size=2, seed=seed)
    sizes = set()
    for x, y in [*squares, *squares, *squares]:
        assert x.shape[-1] == y.shape[-1] + 2 * net.margin and y.shape[-1] == y.shape[-2] <= 60
        middle = x[..., net.margin : x.shape[-2] - net.margin, net.margin : x.shape[-1] - net.margin]
        assert torch.equal(middle[:, 0].long(), y)
        assert net(x).shape[-2:] == y.shape[-2:]
        sizes.add(y.shape[-1])
    assert len(sizes) > 1


def test_squares_can_be_taken_up_again(seed):
    masks = torch.randint(2, (6, 40, 40))
    net = UNetSkips(width=2, levels=2).model()

    def squares():
        return Squares(masks[:, None].float(), masks, net, sides=(8, 30), size=2, seed=seed)

    whole = squares()
    expected = [x for _ in range(2) for x, _ in whole]
    first = squares()
    begun = iter(first)
    next(begun)
    rest = squares()
    rest.restore(first.state())
    found = [x for _ in range(2) for x, _ in rest]
    assert all(torch.equal(a, b) for a, b in zip(found, expected[1:], strict=True))
    other = Squares(masks[:, None].float(), masks, net, sides=(8, 30), size=2, seed=seed + 1)
    assert not all(
        a.shape == b.shape and torch.equal(a, b) for (a, _), b in zip(other, expected, strict=False)
    )


def test_the_truth_scores_best():
    sets = _sections("membranes", 5, "cpu")
    found = scores(sets.masks.float(), sets.masks)
    assert (found["pixel"], found["dice"], found["iou"], found["rand"]) == (0, 100, 100, 0)
    nothing = scores(torch.ones_like(sets.masks).float(), sets.masks)
    assert nothing["dice"] == 0 and nothing["pixel"] > 10 and nothing["rand"] > 50


def test_a_section_of_isbi_goes_through(seed):
    """Untrained: any 512 × 512 section, padded or not."""
    try:
        sets = data.load("isbi2012").scaled()
    except data.DataError as reason:
        pytest.skip(str(reason))
    assert (len(sets.train), len(sets.val)) == (24, 6)
    assert ((sets.val < 15).sum(), (sets.train < 15).sum()) == (3, 12)
    for padding in ("same", "valid"):
        net = UNetSkips(padding=padding, width=2, levels=5).model()
        assert predicted(net, sets.images[:1]).shape == (1, 2, 512, 512)
