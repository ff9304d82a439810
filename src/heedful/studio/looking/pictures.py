"""Patches of a picture: of a trained ViT, or patches that listen to patches that look alike."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ... import data
from ...attention import Everyone
from ...attention.similarity import Softmax
from ...attention.weights import weigh
from ...data import Examples
from ...graphs import Graph
from ...lab import Kept
from ...lab.pictures import fitted, prepared
from ...nn import patchify
from .models import changed
from .seen import Call, Seen
from .uploads import Uploads
from .view import View

BUILT_IN = ("digits", "boxes")
MOST = 256  # patches a page can show
PATCH = 8  # pixels on a side, where no model says
SHARP = 4.0  # as for words


def look(view: View, found: Kept | None, uploads: Uploads) -> Seen:
    picture, name = _picture(view, uploads)
    picture = 255 - picture if view.invert else picture
    return _patches(view, picture, name) if found is None else _model(view, picture, name, found)


def _picture(view: View, uploads: Uploads) -> tuple[Tensor, str]:
    """(channels, height, width) uint8, and what to call it."""
    if view.picture.startswith("sent-"):
        return uploads.find(view.picture), "your picture"
    if view.picture not in at_hand():
        raise ValueError(
            f"picture is {view.picture!r}; it is one of {', '.join(at_hand())}, or one you send."
        )
    images, classes = _images(view.picture)
    image, label = images[view.number % len(images)]
    return image, f"{view.picture}, test picture {view.number % len(images)}: {classes[int(label)]}"


def at_hand() -> list[str]:
    """Sets of pictures that need no download."""
    there = [
        name
        for name in data.names("images")
        if name not in BUILT_IN and all(place.state in ("local", "cached") for place in data.where(name))
    ]
    return [*BUILT_IN, *there]


@lru_cache(maxsize=4)
def _images(name: str) -> tuple[Examples, tuple[str, ...]]:
    found = data.load(name)
    some = found.test.inputs[:1000]  # enough to choose from
    pixels = (some.float() * (255 / found.peak)).round().byte()
    return Examples(pixels, found.test.labels[:1000]), found.classes


def near(grid: tuple[int, int], width: int, extra: int = 0) -> Graph:
    """Patches hear those at most `width` rows and columns away; tokens before them hear and are heard by all.

    >>> near((1, 3), 1)
    Graph(3 nodes, 7 edges)
    """
    down, along = torch.meshgrid(*map(torch.arange, grid), indexing="ij")
    places = torch.stack([down.flatten(), along.flatten()], 1)
    close = (places[:, None] - places).abs().amax(-1) <= width
    return Graph.from_dense(torch.nn.functional.pad(close, (extra, 0, extra, 0), value=True))


def _names(grid: tuple[int, int], extra: int) -> list[str]:
    rows, columns = grid
    places = [f"{row + 1}, {column + 1}" for row in range(rows) for column in range(columns)]
    return ["class"] * extra + places


def _model(view: View, picture: Tensor, name: str, found: Kept) -> Seen:
    vit: Any = found.model
    grid, extra = vit.patches.grid, vit.extra
    count = grid[0] * grid[1] + extra
    if count > MOST:
        raise ValueError(f"{found} sees {count} patches; a page shows {MOST} at most.")
    shown, x, done = prepared(found, picture, view.invert)
    neighbors = {"everyone": Everyone(), "window": near(grid, view.window, extra)}.get(view.neighbors)
    model, call = changed(vit, view, neighbors, count)
    with torch.inference_mode():
        weights, chances = model.attention_maps(x), model(x[None])[0].softmax(0)
    best = int(chances.argmax())
    says = f"the model says {found.notes['classes'][best]} ({100 * float(chances[best]):.0f} %)"
    about = [str(found), name, says, *done, str(call)]
    return Seen(list(weights), _names(grid, extra), about, call, {"image": shown, "grid": grid})


def _patches(view: View, picture: Tensor, name: str) -> Seen:
    """Patches as vectors of their pixels less the picture's mean, of length 1: q_i = k_i."""
    side = view.across * PATCH
    shown, done = fitted(picture.float() / 255, [side, side])
    x = patchify(shown, (PATCH, PATCH))  # (patches, pixels)
    x = x - x.mean()
    x = (x / x.norm(dim=1, keepdim=True).clamp_min(1e-6))[None]
    grid = (view.across, view.across)
    neighbors = near(grid, view.window) if view.neighbors == "window" else Everyone()
    similarity = view.similar(Softmax(SHARP), SHARP)
    call = Call(1, x.shape[1], x.shape[2], similarity, neighbors)
    weights = weigh(x, x, similarity=similarity, neighbors=neighbors)
    about = ["patches that listen to patches that look alike", name, *done, str(call)]
    return Seen([weights], _names(grid, 0), about, call, {"image": shown, "grid": grid})
