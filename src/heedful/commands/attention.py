"""`heedful attention`: who listens to whom in a trained model, as a page to look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from .common import UsageError, choose, print_json
from .using import UsesModel, encoded, tokens_of

MOST = 256  # tokens a page can show


@dataclass
class Attention(UsesModel):
    """Who listens to whom, per layer and head, as heat map and as graph, in one HTML file."""

    prompt: str | None = None
    """What the model reads."""
    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("attention.html")
    """Where the page goes."""
    unknown: str = "error"
    """Symbols of the prompt that the model never saw: error, or skip."""
    json: bool = False
    """Print whom each token listens to most, and where the page is, as JSON."""

    def run(self, console: Console) -> int:
        import torch

        from ..lab.looking import attention_page

        choose("--unknown", self.unknown, ("error", "skip"))
        if not self.prompt:
            raise UsageError("give the text to look at: heedful attention --prompt 'Once upon a time'")
        found = self.kept("text", seed=self.seed)
        tokens = tokens_of(found)
        codes = encoded(tokens, self.prompt, self.unknown)
        if not codes:
            raise UsageError("--prompt: nothing is left of it but symbols the model does not know")
        seen = codes[-min(MOST, found.model.block) :]
        with torch.inference_mode():
            maps = found.model.attention_maps(torch.tensor(seen, device=self.device)).cpu()
        words = [tokens.decode([code]) for code in seen]
        about = str(found)
        if len(seen) < len(codes):
            about += f"; the last {len(seen)} of {len(codes)} tokens: the model sees no more at once"
        if not self.output.parent.is_dir():
            raise UsageError(f"--output: there is no folder {self.output.parent}")
        self.output.write_text(attention_page(maps, words, about=about), encoding="utf-8")
        if self.json:
            print_json(
                {"model": str(found), "page": str(self.output), "tokens": words, "heads": _heads(maps)}
            )
        else:
            console.print(f"{about}\nwritten to {self.output}", highlight=False, soft_wrap=True, markup=False)
        return 0


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
