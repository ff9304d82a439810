"""`heedful segment` and `heedful classify`: pictures of any size and kind, what is done to them, mistakes."""

from __future__ import annotations

import json

import pytest
import torch

from heedful import cli, data, lab
from heedful.models import UNet, ViT, load

NOTES = {
    "use": "classes",
    "classes": ["cat", "dog", "owl"],
    "mean": 0.5,
    "deviation": 0.25,
    "brightness": 0.2,
}


def heedful(capsys, *words):
    status = cli.main([str(word) for word in words])
    said = capsys.readouterr()
    return status, said.out, said.err


def stirred(model, path, notes, seed):
    """A small model in a file, far from its beginning, so that its answers vary."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.save(path, notes=notes)


@pytest.fixture
def unet(tmp_path, seed):
    notes = {"use": "segments", "classes": ["membrane", "cell"]}
    return stirred(UNet(1, 2, widths=[3, 4, 5]), tmp_path / "unet.safetensors", notes, seed)


@pytest.fixture
def vit(tmp_path, seed):
    model = ViT(8, 4, 1, 3, layers=1, heads=2, dim=8)
    return stirred(model, tmp_path / "vit.safetensors", {**NOTES, "channels": 1, "size": [8, 8]}, seed)


def drawn(path, *shape):
    return data.save_picture(torch.randint(256, shape, dtype=torch.uint8), path)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 3, 40), (1, 33, 17), (1, 70, 45)])
def test_segment_pictures_of_any_size(unet, shape, tmp_path, capsys):
    image, mask = drawn(tmp_path / "image.png", *shape), tmp_path / "mask.png"
    status, out, err = heedful(capsys, "segment", "--run", unet, image, "-o", mask, "--json", "--tile", 16)
    assert (status, err) == (0, "")
    found = json.loads(out)
    expected = load(unet).predict(data.picture(image).float() / 255).softmax(0)
    sure = (expected[1] - 0.5).abs() > 1e-4  # rounding may decide the rest
    assert torch.equal((data.picture(mask)[0] == 255)[sure], (expected.argmax(0) == 1)[sure])
    assert found["size"] == list(shape[1:]) and found["mask"] == str(mask)
    assert sum(row["pixels"] for row in found["classes"]) == shape[1] * shape[2]
    white = (data.picture(mask) == 255).float().mean().item()
    assert found["classes"][1]["share"] == pytest.approx(100 * white, abs=0.01)


def test_segment_tells(unet, tmp_path, capsys):
    image = drawn(tmp_path / "image.png", 3, 20, 24)
    status, out, _ = heedful(capsys, "segment", "--run", unet, image)
    assert status == 0
    assert "share, %" in out and "membrane" in out and "20 × 24 pixels" in out
    assert "greyed: the model takes one channel" in out
    assert f"written to {tmp_path / 'image-mask.png'}" in out and (tmp_path / "image-mask.png").exists()
    assert set(data.picture(tmp_path / "image-mask.png").unique().tolist()) <= {0, 255}
    heedful(capsys, "segment", "--run", unet, image, "--soft", "-o", tmp_path / "soft.png")
    grey = data.picture(image).float() * torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    chance = load(unet).predict(grey.sum(0, keepdim=True).round() / 255).softmax(0)[1]
    torch.testing.assert_close(data.picture(tmp_path / "soft.png")[0] / 255, chance, rtol=0, atol=0.003)


def test_classify_is_the_model(vit, tmp_path, capsys):
    image = drawn(tmp_path / "image.png", 1, 8, 8)
    status, out, err = heedful(capsys, "classify", "--run", vit, image, "--json", "--top", 9)
    assert (status, err) == (0, "")
    (answer,) = json.loads(out)["images"]
    expected = load(vit).eval()(((data.picture(image) / 255 - 0.5) / 0.25)[None])[0].softmax(0)
    order = expected.argsort(descending=True).tolist()
    assert [row["class"] for row in answer["classes"]] == [NOTES["classes"][number] for number in order]
    found = [row["probability"] for row in answer["classes"]]
    assert found == pytest.approx(expected[order].tolist(), abs=1e-5) and sum(found) == pytest.approx(
        1, abs=1e-4
    )


def test_classify_says_what_it_did(vit, tmp_path, capsys):
    wide, small = drawn(tmp_path / "wide.png", 3, 32, 50), drawn(tmp_path / "small.png", 1, 4, 4)
    status, out, _ = heedful(capsys, "classify", "--run", vit, wide, small, "--top", 1)
    assert status == 0 and "probability, %" in out
    for words in (
        "wide.png: greyed: the model takes one channel",
        "wide.png: cut to its middle, 32 × 32",
        "wide.png: resized from 32 × 32 to 8 × 8",
        "small.png: resized from 4 × 4 to 8 × 8",
        "of 3 classes",
    ):
        assert words in out
    assert "small.png: cut" not in out and "small.png: grey" not in out


def test_paper_and_ink(vit, tmp_path, capsys):
    """The model knows dark pictures; a bright one is told, and --invert makes it one it knows."""
    bright = data.save_picture(torch.full((8, 8), 250, dtype=torch.uint8), tmp_path / "bright.png")
    dark = data.save_picture(torch.full((8, 8), 5, dtype=torch.uint8), tmp_path / "dark.png")
    _, out, _ = heedful(capsys, "classify", "--run", vit, bright)
    assert "the pictures it knows are 20 % bright on average, this one 98 %: perhaps --invert" in out
    _, inverted, _ = heedful(capsys, "classify", "--run", vit, bright, "--invert", "--json")
    _, plain, _ = heedful(capsys, "classify", "--run", vit, dark, "--json")
    one, other = (json.loads(text)["images"][0] for text in (inverted, plain))
    assert one["classes"] == other["classes"] and one["done"] == []


def test_a_study_s_model_is_found_by_what_it_is_for(tmp_path, capsys):
    lab.run("unet", profile="quick", seeds=1, settings={"steps": 2, "images": 3}, store=tmp_path / "runs")
    image = drawn(tmp_path / "image.png", 1, 30, 30)
    status, out, _ = heedful(capsys, "segment", image, "--runs", tmp_path / "runs", "--set", "skips=without")
    assert status == 0 and "unet: membranes same without, seed 0" in out
    status, _, err = heedful(capsys, "classify", image, "--runs", tmp_path / "runs")
    assert status == 2 and "no model for classes in any run; there is unet (segments)" in err


def test_mistakes_are_one_line(unet, vit, tmp_path, capsys):
    image = drawn(tmp_path / "image.png", 1, 8, 8)
    (tmp_path / "notes.txt").write_text("words")
    for words, said in [
        (["segment"], "which picture?"),
        (["classify"], "which picture?"),
        (["segment", tmp_path / "none.png"], "There is no file"),
        (["classify", tmp_path / "notes.txt"], "not a picture that can be read"),
        (["segment", "--run", vit, image], "is a model for classes, not for segments"),
        (["classify", "--run", unet, image], "is a model for segments, not for classes"),
        (["segment", "--run", unet, image, "-o", image], "is the picture itself"),
        (["segment", "--run", unet, image, "-o", tmp_path / "mask.jpg"], "must end in .png"),
        (["segment", "--run", unet, image, "-o", tmp_path / "none" / "mask.png"], "There is no folder"),
        (["segment", "--run", unet, image, "--tile", "0"], "--tile is 0"),
        (["classify", "--run", vit, image, "--top", "0"], "--top is 0"),
        (["classify", "--run", vit, image, "--device", "tpu"], "--device is 'tpu'"),
        (["classify", "--run", vit, image, "--inverse"], "did you mean '--invert'"),
    ]:
        status, out, err = heedful(capsys, *words)
        assert (status, out) == (2, "") and said in err and len(err.splitlines()) == 1, words


def test_models_of_other_channels(tmp_path, seed, capsys):
    image = drawn(tmp_path / "image.png", 1, 8, 8)
    colour = stirred(
        UNet(3, 2, widths=[2, 3]),
        tmp_path / "c.safetensors",
        {"use": "segments", "classes": ["a", "b"]},
        seed,
    )
    _, out, _ = heedful(capsys, "segment", "--run", colour, image)
    assert "grey taken for all three colours" in out
    odd = stirred(
        UNet(2, 2, widths=[2, 3]),
        tmp_path / "o.safetensors",
        {"use": "segments", "classes": ["a", "b"]},
        seed,
    )
    status, _, err = heedful(capsys, "segment", "--run", odd, image)
    assert status == 2 and "takes pictures of 2 channels; this one has 1" in err
    bare = ViT(8, 4, 1, 3, layers=1, heads=2, dim=8).save(
        tmp_path / "b.safetensors", notes={"use": "classes", "classes": ["a"]}
    )
    status, _, err = heedful(capsys, "classify", "--run", bare, image)
    assert status == 2 and "kept without its channels, size" in err
