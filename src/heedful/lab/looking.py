"""Who listens to whom, to be looked at: heat map and graph of every layer and head, without a network.

`attention_view` is what looking.js shows; `attention_page` is one HTML file with both in it.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

import torch
from torch import Tensor


def attention_view(
    weights: Tensor | Sequence[Tensor],
    tokens: Sequence[str],
    *,
    about: str = "",
    numbers: Sequence[int] | None = None,
    spaced: bool = False,
    image: Tensor | None = None,
    grid: tuple[int, int] | None = None,
    places: Tensor | None = None,
    groups: Sequence[int] | None = None,
    classes: Sequence[str] = (),
    chosen: int | None = None,
) -> dict[str, Any]:
    """What there is to see of weights (layers, heads, tokens, tokens), or a layer each if their heads differ.

    `numbers` are the tokens' places in a longer input of which they are a part; `spaced` puts spaces between
    them. Of an image (channels, height, width), 0 to 1, tokens are the patches of a `grid` (rows, columns),
    those before them (a class token) first. Of a graph they are nodes, with `places` (tokens, 2), 0 to 1,
    and maybe `groups`, numbers among `classes`. `chosen` is whom to show first.
    """
    layers, n = list(weights), len(tokens)
    if not layers or any(layer.dim() != 3 or layer.shape[1:] != (n, n) for layer in layers):
        shape = tuple(weights.shape) if isinstance(weights, Tensor) else [tuple(w.shape) for w in layers]
        raise ValueError(
            f"attention_page(): weights have shape {shape}; for {n} tokens they take "
            f"(layers, heads, {n}, {n})."
        )
    if image is not None and grid is None:
        raise ValueError("attention_page(): an image takes a grid, (rows, columns) of patches.")
    if places is not None and tuple(places.shape) != (n, 2):
        raise ValueError(
            f"attention_page(): places have shape {tuple(places.shape)}; they take ({n}, 2), 0 to 1."
        )
    whole = torch.cat([layer.detach().float().flatten() for layer in layers])
    shown: dict[str, Any] = {
        "kind": "picture" if image is not None else "text" if places is None else "graph",
        "about": about,
        "tokens": list(tokens),
        "numbers": list(numbers if numbers is not None else range(1, n + 1)),
        "spaced": spaced,
        "heads": [len(layer) for layer in layers],
        "weights": base64.b64encode(
            (255 * whole.clamp(0, 1)).round().to(torch.uint8).cpu().numpy().tobytes()
        ).decode(),
        "groups": None if groups is None else list(groups),
        "classes": list(classes),
        "chosen": chosen,
    }
    if image is not None and grid is not None:
        shown |= {"picture": _picture(image), "grid": list(grid), "extra": n - grid[0] * grid[1]}
    if places is not None:
        shown["places"] = [[round(share, 4) for share in place] for place in places.tolist()]
    return shown


def attention_page(weights: Tensor | Sequence[Tensor], tokens: Sequence[str], **options: Any) -> str:
    """The page for weights (layers, heads, tokens, tokens) and what the tokens say, as `attention_view`.

    >>> page = attention_page(torch.eye(3).expand(2, 4, 3, 3), ["a", "b", "c"])
    >>> page.startswith("<!doctype html>")
    True
    """
    shown = json.dumps(attention_view(weights, tokens, **options), ensure_ascii=False)
    parts = {
        "__STYLE__": _file("looking.css"),
        "__SCRIPT__": _file("looking.js"),
        "__DATA__": shown.replace("<", "\\u003c"),  # nothing in it ends the script
    }
    page = _file("attention.html")
    for mark, text in parts.items():
        page = page.replace(mark, text)
    return page


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _picture(image: Tensor) -> str:
    """A PNG as an address that holds it."""
    from PIL import Image

    pixels = (255 * image.detach().float().clamp(0, 1)).round().to(torch.uint8).cpu()
    pixels = pixels[0] if len(pixels) == 1 else pixels[:3].permute(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(pixels.numpy()).save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
