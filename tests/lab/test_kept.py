"""Models that studies kept are found by run, variant, seed and use, or said not to be there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from heedful import lab, models

sys.path.insert(0, str(Path(__file__).parent))
import toys  # noqa: F401


def test_found_by_run_variant_and_seed(tmp_path):
    result = lab.run("toy-keeper", seeds=2, store=tmp_path, backend="loop")
    first = lab.kept(store=tmp_path, use="classes")
    assert (first.trial.seed, first.trial.settings["wide"]) == (0, "narrow")
    assert first.notes["classes"] == ["cat", "dog"] and first.notes["study"] == "toy-keeper"
    assert str(first) == "toy-keeper: narrow, seed 0"
    other = lab.kept(result.run.id, store=tmp_path, settings={"wide": "wide"}, seed=1)
    assert (other.trial.seed, other.trial.settings["wide"]) == (1, "wide")
    torch.manual_seed(1)
    expected = models.Autoencoder(4, [3]).state_dict()
    assert all(torch.equal(expected[name], value) for name, value in other.model.state_dict().items())
    by_file = lab.kept(str(other.path), use="classes")
    assert by_file.trial is None and by_file.notes == other.notes


def test_the_newest_run_of_that_use_counts(tmp_path):
    lab.run("toy-keeper", seeds=1, store=tmp_path)
    lab.run("toy-line", seeds=1, store=tmp_path)
    assert lab.kept(store=tmp_path, use="classes").trial.study == "toy-keeper"
    with pytest.raises(
        ValueError, match=r"no model for text in any run; there is toy-keeper \(classes\)\. Train"
    ):
        lab.kept(store=tmp_path, use="text")
    with pytest.raises(ValueError, match=r"no model in toy-line-\S+\. Train one"):
        lab.kept("toy-line", store=tmp_path)
    with pytest.raises(ValueError, match=r"no model for classes .* with wide=wide, seed 7"):
        lab.kept(store=tmp_path, use="classes", settings={"wide": "wide"}, seed=7)


def test_what_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="holds no runs yet"):
        lab.kept(store=tmp_path)
    path = models.Autoencoder(4, [2]).save(tmp_path / "bare.safetensors")
    assert models.notes(path) == {}
    with pytest.raises(ValueError, match="no use it tells, not for text"):
        lab.kept(str(path), use="text")
