"""Pictures of your own, read by Pillow: PNG, JPEG, TIFF and BMP, grey or in colour, 8 or 16 bits."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

FORMATS = ("PNG", "JPEG", "TIFF", "BMP")


def picture(
    source: str | Path | bytes, *, formats: tuple[str, ...] = FORMATS, most: int | None = None
) -> Tensor:
    """The picture in a file, (channels, height, width) uint8: one channel if it is grey, three if coloured.

    Sixteen bits become eight. What shows through transparency is white. `source` may be
    a file's bytes; a stranger's, in another of the `formats` or with more than `most` pixels, is not decoded.

    >>> import tempfile; folder = tempfile.TemporaryDirectory()
    >>> path = save_picture(torch.arange(6).byte().view(1, 2, 3), Path(folder.name) / "six.png")
    >>> picture(path)
    tensor([[[0, 1, 2],
             [3, 4, 5]]], dtype=torch.uint8)
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    name = "the picture" if isinstance(source, bytes) else str(source := Path(source).expanduser())
    if isinstance(source, Path) and not source.is_file():
        raise FileNotFoundError(f"There is no file {source}.")
    try:
        with Image.open(
            io.BytesIO(source) if isinstance(source, bytes) else source, formats=formats
        ) as image:
            if most is not None and image.width * image.height > most:
                raise ValueError(f"it has {image.width} × {image.height} pixels; it takes {most:,} at most.")
            count = getattr(image, "n_frames", 1)
            if count > 1:
                raise ValueError(f"it holds {count} pictures; save the one you mean by itself.")
            return _pixels(ImageOps.exif_transpose(image))
    except UnidentifiedImageError:
        raise ValueError(
            f"{name}: not a picture that can be read; it must be {', '.join(formats)}."
        ) from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{name}: cannot be read: {error}") from error


def save_picture(image: Tensor, path: str | Path) -> Path:
    """Write (1 or 3, height, width) or (height, width) uint8 as a PNG; its path."""
    from PIL import Image

    path = Path(path)
    fits = image.dim() == 2 or (image.dim() == 3 and len(image) in (1, 3))
    if image.dtype != torch.uint8 or not fits:
        raise ValueError(
            f"save_picture(): got {image.dtype} of shape {tuple(image.shape)}; takes uint8 of shape "
            f"(height, width), (1, height, width) or (3, height, width)."
        )
    if path.suffix.lower() != ".png":
        raise ValueError(f"save_picture(): {path} must end in .png.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent}.")
    flat = image if image.dim() == 2 else image[0] if len(image) == 1 else image.permute(1, 2, 0)
    Image.fromarray(flat.cpu().numpy()).save(path, format="PNG")
    return path


def _pixels(image) -> Tensor:
    if image.mode.startswith("I"):  # sixteen bits, whatever the order of its bytes
        wide = np.asarray(image).astype(np.int64)
        if wide.min() < 0 or wide.max() > 65535:
            raise ValueError(
                f"its pixels go from {wide.min()} to {wide.max()}; they must be of 8 or 16 bits."
            )
        return torch.from_numpy((wide // 257).astype(np.uint8))[None]
    if image.mode in ("F", "CMYK", "LAB", "HSV", "YCbCr"):
        raise ValueError(f"its mode is {image.mode}; save it in grey or RGB, 8 or 16 bits.")
    if "A" in image.mode or "transparency" in image.info:
        from PIL import Image

        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image).convert("RGB")
    if image.mode in ("1", "L"):
        return torch.from_numpy(np.array(image.convert("L")))[None]
    pixels = torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)
    grey = bool((pixels == pixels[:1]).all())
    return pixels[:1].contiguous() if grey else pixels.contiguous()
