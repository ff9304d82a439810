"""`heedful attention`: who listens to whom in a trained model, as a page to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from .common import UsageError, choose, print_json
from .using import UsesModel, encoded, tokens_of

MOST = 256  # tokens a page can show


@dataclass
class Attention(UsesModel):
    """Who listens to whom, per layer and head, as heat map and as graph, in one HTML file."""

    prompt: str | None = None
    """What a language model reads; or"""
    image: Path | None = None
    """what a vision transformer sees."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("attention.html")
    """Where the page goes."""
    unknown: str = "error"
    """Symbols of the prompt that the model never saw: error, or skip."""
    invert: bool = False
    """Take dark for bright in the image."""
    json: bool = False
    """Print whom each token listens to most, and where the page is, as JSON."""

    def run(self, console: Console) -> int:
        from ..lab.looking import attention_page

        choose("--unknown", self.unknown, ("error", "skip"))
        if bool(self.prompt) == bool(self.image):
            raise UsageError("what is it to look at? Give --prompt 'Once upon a time', or --image digit.png")
        if not self.output.parent.is_dir():
            raise UsageError(f"--output: there is no folder {self.output.parent}")
        found, maps, words, said, seen = self._image(self.image) if self.image else self._text()
        about = "; ".join([str(found), *said])
        self.output.write_text(attention_page(maps, words, about=about, **seen), encoding="utf-8")
        if self.json:
            heads = _heads(maps)
            print_json({"model": str(found), "page": str(self.output), "tokens": words, "heads": heads})
        else:
            console.print(f"{about}\nwritten to {self.output}", highlight=False, soft_wrap=True, markup=False)
        return 0

    def _text(self) -> tuple[Any, Any, list[str], list[str], dict[str, Any]]:
        """The model, its weights, its tokens, what to say about them, and the image if they are of one."""
        import torch

        found = self.kept("text", seed=self.seed)
        tokens = tokens_of(found)
        codes = encoded(tokens, self.prompt or "", self.unknown)
        if not codes:
            raise UsageError("--prompt: nothing is left of it but symbols the model does not know")
        seen = codes[-min(MOST, found.model.block) :]
        with torch.inference_mode():
            maps = found.model.attention_maps(torch.tensor(seen, device=self.device)).cpu()
        about = []
        if len(seen) < len(codes):
            about = [f"the last {len(seen)} of {len(codes)} tokens: the model sees no more at once"]
        return found, maps, [tokens.decode([code]) for code in seen], about, {}

    def _image(self, path: Path) -> tuple[Any, Any, list[str], list[str], dict[str, Any]]:
        import torch

        from .. import data
        from ..lab.pictures import prepared

        picture = data.picture(path)
        found = self.kept("classes", seed=self.seed)
        if not hasattr(found.model, "attention_maps"):
            kind = type(found.model).__name__
            raise UsageError(f"{found}: a {kind} has no attention to look at; take --run vit --set model=vit")
        shown, x, done = prepared(found, 255 - picture if self.invert else picture, self.invert)
        with torch.inference_mode():
            maps = found.model.attention_maps(x.to(self.device)).cpu()
        rows, columns = found.model.patches.grid
        if maps.shape[-1] > MOST:
            raise UsageError(f"{found}: sees {maps.shape[-1]} patches; a page shows {MOST} at most")
        words = ["class"] * found.model.extra
        words += [f"{row + 1}, {column + 1}" for row in range(rows) for column in range(columns)]
        return found, maps, words, done, {"image": shown, "grid": (rows, columns)}


def _heads(maps) -> list[dict]:
    """Each head: how far it looks, and whom each token listens to most."""
    from ..probes import attention_distance

    return [
        {
            "layer": layer + 1,
            "head": head + 1,
            "distance": float(attention_distance(weights)),
            "most": weights.argmax(-1).tolist(),
        }
        for layer, of_layer in enumerate(maps)
        for head, weights in enumerate(of_layer)
    ]
