"""The ViT study: nets of equal size, one change at a time, distances and rollouts that are what they say."""

from __future__ import annotations

import pytest
import torch

from heedful import data, lab
from heedful.models import ConvNet, ViT
from heedful.studies._images import batches, images, moved
from heedful.studies.vit import PATCH, VisionTransformer, convnet_of, distances, heeded, warm_cosine

SHAPES = {"digits": (1, 8), "mnist": (1, 28), "cifar10-10k": (3, 32), "cifar10": (3, 32)}


def notes(dataset):
    channels, size = SHAPES[dataset]
    return {"channels": channels, "size": [size, size], "classes": list("0123456789")}


@pytest.mark.parametrize("dataset", PATCH)
@pytest.mark.parametrize("profile", lab.PROFILES)
def test_vit_and_cnn_have_as_many_parameters(dataset, profile):
    changes = {k: v for k, v in getattr(VisionTransformer, profile, {}).items() if k != "axes"}
    counts = {}
    for variant in lab.find("vit").variants(profile):
        settings = VisionTransformer(**{**changes, "dataset": dataset, "net": variant.net})
        model = settings.model(notes(dataset))
        assert isinstance(model, ConvNet if variant.net == "cnn" else ViT)
        assert model(torch.randn(2, SHAPES[dataset][0], *notes(dataset)["size"])).shape == (2, 10)
        counts[variant.net] = model.parameter_count
    assert abs(counts["cnn"] - counts["vit"]) < 0.02 * counts["vit"]
    assert counts["vit, relu"] == counts["vit"]
    table = (1 + (notes(dataset)["size"][0] // PATCH[dataset]) ** 2) * settings.dim  # of learned positions
    assert counts["vit, sinusoidal"] == counts["vit, no positions"] == counts["vit"] - table


def test_a_convnet_of_any_size(seed):
    for wanted in torch.logspace(4, 7, 20).long().tolist():
        assert abs(convnet_of(wanted, 3, 10).parameter_count - wanted) < 0.02 * wanted


def test_one_change_at_a_time():
    base = VisionTransformer()
    for variant in lab.find("vit").variants("full"):
        changed = (variant.net not in (base.net, "cnn")) + (variant.share != base.share)
        assert changed <= 1
    assert len(lab.find("vit").variants("full")) == 9
    assert lab.find("vit").variants("full")[0] == base  # what `classify` finds first


def test_a_vit_that_hears_itself_looks_nowhere(seed):
    """One layer that heeds nothing but the same place, and one that heeds all alike."""
    model = ViT(8, 2, 1, 10, layers=2, heads=2, dim=16)
    seen = torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query_key_value.weight[:32] = 0
            block.attention.query_key_value.bias[:32] = 0
    places = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0)) * 2
    everywhere = torch.cdist(places, places).mean()
    torch.testing.assert_close(distances(model, seen), everywhere.expand(2, 2))
    torch.testing.assert_close(heeded(model, seen), torch.full((3, 4, 4), (1 - 0.25) / 17))


def test_the_rate_goes_up_and_down():
    share = warm_cosine(100)
    rates = [share(step) for step in range(101)]
    assert rates[0] == 0.1 and rates[10] == max(rates) == 1 and rates[100] == pytest.approx(0)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_images_are_as_the_notes_say():
    sets, raw = images("digits", "cpu"), data.load("digits").scaled()
    torch.testing.assert_close(sets.pixels(sets.x), raw.train.inputs)
    torch.testing.assert_close(sets.x * sets.notes["deviation"] + sets.notes["mean"], raw.train.inputs)
    assert sets.notes["size"] == [8, 8] and sets.notes["channels"] == 1 and sets.classes == 10


def test_moved_images_are_shifted_or_mirrored(seed):
    x = torch.randn(64, 3, 16, 16)
    out = moved(x, torch.Generator().manual_seed(seed))
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4))
    crops = [padded[..., down : down + 16, right : right + 16] for down in range(9) for right in range(9)]
    fits = [((out == crop).flatten(1).all(1), (out == crop.flip(-1)).flatten(1).all(1)) for crop in crops]
    plain, mirrored = max(fits, key=lambda pair: int((pair[0] | pair[1]).sum()))
    assert (plain | mirrored).all() and plain.any() and mirrored.any()


def test_photographs_come_moved_and_others_as_they_are(seed):
    x, y = torch.randn(40, 3, 16, 16), torch.arange(40)
    plain, photographs = (
        list(batches(name, x, y, size=40, seed=seed, generator=torch.Generator().manual_seed(seed)))
        for name in ("digits", "cifar10-10k")
    )
    (still, order), (away, other) = plain[0], photographs[0]
    assert torch.equal(still, x[order]) and torch.equal(order, other)
    assert torch.equal(away, moved(still, torch.Generator().manual_seed(seed)))
    alone = next(
        iter(batches("cifar10", x, size=40, seed=seed, generator=torch.Generator().manual_seed(seed)))
    )
    assert torch.equal(alone, away)
