"""The masked autoencoder's study: what is filled in, what is measured, and that both starts are one net."""

from __future__ import annotations

import pytest
import torch

from heedful.studies._images import images
from heedful.studies.masked_autoencoders import MaskedAutoencoders, _hidden, filled

QUICK = {name: value for name, value in MaskedAutoencoders.quick.items() if name != "axes"}


@pytest.fixture
def model(seed):
    torch.manual_seed(seed)
    return MaskedAutoencoders(dataset="digits", **QUICK).model(images("digits", "cpu").notes).eval()


def test_three_quarters_are_hidden(model):
    seen = images("digits", "cpu").test[:5]
    found = filled(model, seen)
    shown = found["shown"] == seen
    assert shown.float().mean() < 0.35  # a hidden pixel may happen to be of the grey it is hidden by
    assert torch.equal(found["filled"][shown & (found["shown"] != 0)], seen[shown & (found["shown"] != 0)])
    assert torch.equal(found["images"], seen)


def test_filling_in_nothing_is_one(model):
    test = images("digits", "cpu").test[:50]
    with torch.no_grad():
        model.predict.weight.zero_()
        model.predict.bias.zero_()
    assert _hidden(model, test) == 1


def test_full_settings_are_the_course_s():
    full = MaskedAutoencoders()
    model = full.model({"size": [32, 32], "channels": 3, "classes": list("0123456789")})
    assert model.encoder.patches.patch == (4, 4) and model.hidden_patches == 48 and full.tune_epochs == 10
    assert model.classifier(10)(torch.randn(2, 3, 32, 32)).shape == (2, 10)
