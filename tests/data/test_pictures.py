"""Pictures of one's own: every kind that is read comes out as the same pixels; the rest says why not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from heedful import data


@pytest.fixture
def grey(seed):
    return torch.randint(256, (1, 5, 7), dtype=torch.uint8)


@pytest.fixture
def colour(seed):
    return torch.randint(256, (3, 5, 7), dtype=torch.uint8)


def rows(image):
    return image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()


def saved(path, array, **options):
    Image.fromarray(array).save(path, **options)
    return path


@pytest.mark.parametrize("kind", ["png", "tiff", "bmp"])
def test_what_is_written_is_read(kind, grey, colour, tmp_path):
    for image in (grey, colour):
        assert torch.equal(data.picture(saved(tmp_path / f"a.{kind}", rows(image))), image)
    assert torch.equal(data.picture(data.save_picture(colour, tmp_path / "b.png")), colour)
    assert torch.equal(data.picture(data.save_picture(grey[0], tmp_path / "c.png")), grey)


def test_jpeg_is_near(tmp_path):
    smooth = torch.arange(64).view(1, 8, 8).byte() * 3
    found = data.picture(saved(tmp_path / "a.jpg", rows(smooth), quality=95))
    assert found.shape == (1, 8, 8) and (found.int() - smooth.int()).abs().max() < 8


def test_other_depths(grey, tmp_path):
    wide = rows(grey).astype(np.uint16) * 257
    for kind in ("png", "tiff"):
        assert torch.equal(data.picture(saved(tmp_path / f"wide.{kind}", wide)), grey)
    bits = rows(grey) > 127
    assert torch.equal(data.picture(saved(tmp_path / "bits.png", bits)), torch.from_numpy(bits)[None] * 255)
    indexed = Image.fromarray(rows(grey)).convert("P")
    indexed.save(tmp_path / "indexed.png")
    assert torch.equal(data.picture(tmp_path / "indexed.png"), grey)


def test_grey_in_three_channels_is_grey(grey, tmp_path):
    assert torch.equal(data.picture(saved(tmp_path / "a.png", rows(grey.expand(3, -1, -1)))), grey)


def test_what_is_transparent_is_white(colour, tmp_path):
    alpha = torch.full((1, 5, 7), 255, dtype=torch.uint8)
    alpha[0, 2] = 0
    found = data.picture(saved(tmp_path / "a.png", rows(torch.cat([colour, alpha]))))
    expected = colour.clone()
    expected[:, 2] = 255
    assert torch.equal(found, expected)


def test_what_cannot_be_read(grey, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file .*none\.png"):
        data.picture(tmp_path / "none.png")
    (tmp_path / "text.png").write_text("not a picture")
    with pytest.raises(ValueError, match=r"text\.png: not a picture that can be read; it must be PNG, JPEG"):
        data.picture(tmp_path / "text.png")
    whole = saved(tmp_path / "whole.png", np.random.RandomState(0).randint(0, 255, (64, 64), dtype=np.uint8))
    (tmp_path / "half.png").write_bytes(whole.read_bytes()[:2000])
    with pytest.raises(ValueError, match=r"half\.png: cannot be read"):
        data.picture(tmp_path / "half.png")
    pages = [Image.fromarray(rows(grey))] * 3
    pages[0].save(tmp_path / "stack.tiff", save_all=True, append_images=pages[1:])
    with pytest.raises(ValueError, match="it holds 3 pictures"):
        data.picture(tmp_path / "stack.tiff")
    with pytest.raises(ValueError, match="mode is F; save it in grey or RGB"):
        data.picture(saved(tmp_path / "float.tiff", rows(grey).astype(np.float32)))


def test_what_cannot_be_written(grey, tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.png"):
        data.save_picture(grey, tmp_path / "a.jpg")
    with pytest.raises(ValueError, match=r"float32 of shape \(1, 5, 7\)"):
        data.save_picture(grey.float(), tmp_path / "a.png")
    with pytest.raises(FileNotFoundError, match="no folder"):
        data.save_picture(grey, tmp_path / "none" / "a.png")
