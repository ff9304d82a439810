"""The key effect of every study, at sizes that take seconds."""

from __future__ import annotations

import pytest

from heedful import lab


def run(name, tmp_path, seeds=1, profile="quick", **settings):
    result = lab.run(name, seeds=seeds, profile=profile, settings=settings, store=tmp_path, backend="loop")
    for trial in result.failures:
        pytest.fail(trial.error)
    figure = result.figure()
    figure.savefig(tmp_path / f"{name}.png")
    assert (tmp_path / f"{name}.png").stat().st_size > 5000
    return {
        label: {metric: result.summary(key, metric).mean for metric in result.study.metrics}
        for key, _, label in result.variants()
    }, result


def test_accumulation(tmp_path):
    found, result = run("accumulation", tmp_path)
    assert found["batch 1"]["angle"] == 0
    assert found["batch 8"]["angle"] > 30
    for norm in ("layer", "none"):
        for pieces in (2, 4, 8, 16, 32):
            assert found[f"{norm} {pieces}"]["angle"] == 0
            assert found[f"{norm} {pieces}"]["size"] == pytest.approx(1, abs=1e-12)
            assert found[f"{norm} {pieces}"]["logits"] < 1e-12
    assert "layer norm: the same gradient" in result.study.settings.verdict(result)
    assert "batch norm: a gradient up to" in result.study.settings.verdict(result)


def test_zero_grad(tmp_path):
    found, result = run("zero-grad", tmp_path, seeds=3)
    assert found["bowl yes"]["growth"] < -1 and abs(found["bowl no"]["growth"]) < 0.3  # it swings, and stays
    assert found["noisy bowl no"]["growth"] > found["noisy bowl yes"]["growth"] + 1
    assert all(found[f"{problem} yes"]["accumulated"] == 1 for problem in ("bowl", "noisy bowl", "network"))
    assert found["bowl no"]["accumulated"] > 2
    assert "bowl: swings without, falls with" in result.study.settings.verdict(result)


def test_cora(tmp_path):
    found, _ = run("cora", tmp_path, epochs="40")
    assert (
        found["citations gcn"]["test"] > 50 and found["citations gat"]["test"] > 50
    )  # seven classes: chance is 14


def test_rotation(tmp_path):
    found, _ = run("rotation", tmp_path, epochs="6")
    upright, turned = found["digits upright"], found["digits turned"]
    assert upright["upright"] - upright["turned"] > 30
    assert abs(turned["upright"] - turned["turned"]) < 20
    assert turned["turned"] > upright["turned"]


def test_autoencoders(tmp_path):
    found, _ = run("autoencoders", tmp_path)
    assert found["synthetic vanilla 5"]["loss"] > found["synthetic vanilla 20"]["loss"]
    assert 227 < found["synthetic vanilla 5"]["loss"] < found["synthetic untrained 5"]["loss"]
    assert found["synthetic vanilla 20"]["probe"] > found["synthetic vanilla 5"]["probe"] + 5
