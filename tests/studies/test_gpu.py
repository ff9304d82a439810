"""Studies of images on a GPU: they run, learn, and their models are used there."""

from __future__ import annotations

import json

import pytest
import torch

from heedful import cli, data, lab

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize(
    "name, settings, metric, least",
    [
        ("unet", {"steps": 60, "skips": "with"}, "dice", 40),
        ("unet", {"steps": 60, "skips": "with", "padding": "valid"}, "dice", 40),
        ("vit", {"net": "vit, sinusoidal", "share": 100}, "test", 50),
        ("vit", {"net": "cnn", "share": 10}, "test", 70),
        ("masked-autoencoders", {"start": "masked"}, "probe", 40),
        ("rotation", {"training": "turned", "epochs": 4}, "upright", 30),
        ("degradation", {"net": "residual", "depth": 20, "epochs": 4}, "slope", -5),
    ],
)
def test_they_learn(name, settings, metric, least, tmp_path):
    result = lab.run(
        name, profile="quick", seeds=1, settings=settings, store=tmp_path, device="cuda", backend="loop"
    )
    for trial in result.failures:
        pytest.fail(trial.error)
    assert result.trials[0].results[metric] > least
    result.figure().savefig(tmp_path / "figure.png")


def test_pictures(tmp_path, capsys):
    lab.run("unet", profile="quick", seeds=1, settings={"steps": 5}, store=tmp_path, device="cuda")
    lab.run("rotation", profile="quick", seeds=1, settings={"epochs": 1}, store=tmp_path, device="cuda")
    image = data.save_picture(torch.randint(256, (3, 37, 50)).byte(), tmp_path / "image.png")
    for verb in ("segment", "classify"):
        answers = []
        for device in ("cpu", "cuda"):
            assert cli.main([verb, str(image), "--runs", str(tmp_path), "--device", device, "--json"]) == 0
            answers.append(json.loads(capsys.readouterr().out))
        if verb == "segment":
            shares = [[row["share"] for row in answer["classes"]] for answer in answers]
            assert shares[0] == pytest.approx(shares[1], abs=1)
        else:
            best = [answer["images"][0]["classes"] for answer in answers]
            assert best[0][0]["probability"] == pytest.approx(best[1][0]["probability"], abs=0.01)
