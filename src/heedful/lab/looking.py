"""Who listens to whom, as one HTML page: heat map and graph of every layer and head, without a network."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import torch
from torch import Tensor


def attention_page(
    weights: Tensor,
    tokens: Sequence[str],
    *,
    about: str = "",
    image: Tensor | None = None,
    grid: tuple[int, int] | None = None,
) -> str:
    """The page for weights (layers, heads, tokens, tokens) and what the tokens say.

    Of an image (channels, height, width), 0 to 1, tokens are the patches of a `grid` (rows, columns), those
    before them (a class token) first.

    >>> page = attention_page(torch.eye(3).expand(2, 4, 3, 3), ["a", "b", "c"])
    >>> page.startswith("<!doctype html>")
    True
    """
    if weights.dim() != 4 or weights.shape[-2:] != (len(tokens), len(tokens)):
        raise ValueError(
            f"attention_page(): weights have shape {tuple(weights.shape)}; for {len(tokens)} tokens they "
            f"take (layers, heads, {len(tokens)}, {len(tokens)})."
        )
    shown: dict[str, Any] = {
        "about": about,
        "tokens": list(tokens),
        "layers": weights.shape[0],
        "heads": weights.shape[1],
        "weights": base64.b64encode(
            (255 * weights.detach().float().clamp(0, 1)).round().to(torch.uint8).cpu().numpy().tobytes()
        ).decode(),
        "picture": None,
    }
    if image is not None:
        if grid is None:
            raise ValueError("attention_page(): an image takes a grid, (rows, columns) of patches.")
        shown |= {"picture": _picture(image), "grid": list(grid), "extra": len(tokens) - grid[0] * grid[1]}
    text = json.dumps(shown, ensure_ascii=False).replace("<", "\\u003c")  # nothing in it ends the script
    page = resources.files(__package__).joinpath("attention.html").read_text(encoding="utf-8")
    return page.replace("__DATA__", text)


def _picture(image: Tensor) -> str:
    """A PNG as an address that holds it."""
    from PIL import Image

    pixels = (255 * image.detach().float().clamp(0, 1)).round().to(torch.uint8).cpu()
    pixels = pixels[0] if len(pixels) == 1 else pixels[:3].permute(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
