"""`heedful segment` and `heedful classify`: what a trained model makes of your pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from .common import UsageError, print_json
from .using import UsesModel

TILE = 512  # pixels on a side that a net is shown at once, and what it can hear of beyond


@dataclass
class Segment(UsesModel):
    """Which pixels of a picture are what, by a model that the study unet trained; pictures of any size."""

    image: Annotated[str, tyro.conf.arg(metavar="IMAGE"), tyro.conf.Positional] = ""
    """A PNG, JPEG, TIFF or BMP."""
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Where the mask goes, a PNG, black for the first class, white for the last; else IMAGE-mask.png."""
    soft: bool = False
    """Write the probability of the last class as grey, not the likeliest class."""
    tile: int = TILE
    """Pixels on a side to look at in one go; less takes less memory, the mask stays the same."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        from .. import data
        from ..display import show_rows
        from ..lab.pictures import in_channels

        if not self.image:
            raise UsageError("which picture? heedful segment image.png -o mask.png")
        if self.tile < 1:
            raise UsageError(f"--tile is {self.tile}; it takes 1 or more")
        path = Path(self.image)
        output = self.output or path.with_name(f"{path.stem}-mask.png")
        if output.exists() and path.exists() and output.samefile(path):
            raise UsageError(f"--output {output} is the picture itself; give another name")
        picture = data.picture(path)
        found = self.kept("segments", seed=self.seed)
        shown, done = in_channels(picture, found.model.config["channels"])
        chances = (
            _tried(found.model.predict, shown.float().to(self.device) / 255, tile=self.tile).softmax(0).cpu()
        )
        classes = found.notes["classes"]
        mask = chances.argmax(0)
        written = chances[-1] if self.soft else mask / (len(classes) - 1)
        data.save_picture((255 * written).round().byte(), output)
        rows = [
            {
                "class": name,
                "share": round(100 * float((mask == number).float().mean()), 2),
                "pixels": int((mask == number).sum()),
                "sureness": _mean(chances[number][mask == number]),
            }
            for number, name in enumerate(classes)
        ]
        height, width = mask.shape
        if self.json:
            about = {"model": str(found), "image": str(path), "mask": str(output), "size": [height, width]}
            print_json({**about, "done": done, "classes": rows})
            return 0
        show_rows(
            [
                {"class": r["class"], "share, %": r["share"], "pixels": r["pixels"], "sure, %": r["sureness"]}
                for r in rows
            ],
            console,
        )
        said = [f"{found}; {height} × {width} pixels", *done, f"written to {output}"]
        console.print("\n".join(said), highlight=False, soft_wrap=True, markup=False)
        return 0


@dataclass
class Classify(UsesModel):
    """What is in a picture, by a model that the studies vit, rotation or masked-autoencoders trained."""

    images: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="IMAGE"), tyro.conf.Positional] = ()
    """PNG, JPEG, TIFF or BMP files; one or more."""
    top: int = 3
    """How many classes to name, the likeliest first."""
    invert: bool = False
    """Take dark for bright: for ink on paper, where the model knows bright strokes on black."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        from .. import data
        from ..display import show_rows

        if not self.images:
            raise UsageError("which picture? heedful classify image.png")
        if self.top < 1:
            raise UsageError(f"--top is {self.top}; it takes 1 or more")
        pictures = [data.picture(path) for path in self.images]
        found = self.kept("classes", seed=self.seed)
        answers = [
            {"image": str(path), **self._answer(found, 255 - picture if self.invert else picture)}
            for path, picture in zip(self.images, pictures, strict=True)
        ]
        if self.json:
            print_json({"model": str(found), "images": answers})
            return 0
        rows = [
            {
                "picture": Path(answer["image"]).name if place == 0 else "",
                "class": row["class"],
                "probability, %": round(100 * row["probability"], 1),
            }
            for answer in answers
            for place, row in enumerate(answer["classes"])
        ]
        show_rows(rows, console)
        said = [f"{found}; of {len(found.notes['classes'])} classes"]
        said += [f"{Path(answer['image']).name}: {words}" for answer in answers for words in answer["done"]]
        console.print("\n".join(said), highlight=False, soft_wrap=True, markup=False)
        return 0

    def _answer(self, found, picture) -> dict[str, Any]:
        import torch

        from ..lab.pictures import prepared

        notes = found.notes
        _, x, done = prepared(found, picture, self.invert)
        x = x[None].to(self.device)
        with torch.inference_mode():
            chances = _tried(found.model, x)[0].softmax(0).cpu()
        best = chances.topk(min(self.top, len(chances)))
        classes = [
            {"class": notes["classes"][number], "probability": round(chance, 6)}
            for chance, number in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        return {"classes": classes, "done": done}


def _mean(values) -> float | None:
    return round(100 * float(values.mean()), 1) if values.numel() else None


def _tried(model, x, **options):
    """A picture too large for the memory is told, not traced."""
    try:
        return model(x, **options)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "memory" in str(error):
            raise UsageError(
                f"the picture, {x.shape[-2]} × {x.shape[-1]}, does not fit into memory: try --tile 128"
            ) from None
        raise
