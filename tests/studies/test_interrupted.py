"""A study's training that is interrupted goes on from its checkpoint, to the very same numbers."""

from __future__ import annotations

import sys

import pytest
import torch

from heedful import lab
from heedful.training import Checkpoint


class Place:
    """A desk that is pulled away after so many steps were logged."""

    def __init__(self, folder, patience=None):
        self.device, self.folder, self.left, self.steps = torch.device("cpu"), folder, patience, []
        folder.mkdir(exist_ok=True)

    def log(self, step, **numbers):
        if "loss" in numbers or any(name.endswith(", loss") for name in numbers):
            self.steps.append(step)
            if self.left == len(self.steps):
                raise KeyboardInterrupt

    def keep(self, model, **notes): ...

    def save(self, name, thing): ...

    def progress(self, share): ...


@pytest.mark.parametrize(
    "name, settings, patience",
    [
        ("unet", {"steps": 12, "images": 5, "batch": 2}, 8),
        ("vit", {"epochs": 1, "batch": 128}, 8),
        ("masked-autoencoders", {"epochs": 1, "tune_epochs": 4}, 9),  # while it fills in
        ("masked-autoencoders", {"epochs": 1, "tune_epochs": 4}, 20),  # while it is tuned
    ],
)
def test_it_goes_on(name, settings, patience, tmp_path, monkeypatch, seed):
    study = lab.find(name)
    module = sys.modules[study.settings.__module__]
    monkeypatch.setattr(module, "Checkpoint", lambda folder, seconds: Checkpoint(folder, every=3))
    variant = study.variants("quick", settings)[0]
    whole = Place(tmp_path / "whole")
    expected = variant.run(seed, whole)
    first, second = Place(tmp_path / "parts", patience), Place(tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        variant.run(seed, first)
    torch.manual_seed(0)
    assert variant.run(seed, second) == expected
    assert len(second.steps) < len(whole.steps)
    assert sorted(set(first.steps) | set(second.steps)) == sorted(set(whole.steps))
    assert not list(second.folder.iterdir())  # checkpoints are not left behind
