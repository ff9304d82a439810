"""What verbs that use a trained model share: which one, of which run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from .common import Number, UsageError
from .lab import Setting, settings

# The option is --run; a field of that name would hide the method.
Which = Annotated[str, tyro.conf.arg(name="run")]


@dataclass
class UsesModel:
    """A verb that uses a model some study kept; `kept(use)` finds it."""

    which: Which = "latest"
    """A run, the beginning of its name, a study, a model's file; latest: the newest that fits."""
    set: Setting = ()
    """Which variant, as in --set size=nano; the first that fits."""
    seed: Number = None
    """Of which seed; the first there is unless given."""
    runs: Path = Path("runs")
    """Where results are kept."""
    device: str = "cpu"
    """cpu or cuda."""

    def kept(self, use: str | None, *, seed: int | None):
        import torch

        from .. import lab

        kind = self.device.partition(":")[0]
        if kind not in ("cpu", "cuda"):
            raise UsageError(f"--device is {self.device!r}; it is cpu or cuda")
        if kind == "cuda" and not torch.cuda.is_available():
            raise UsageError("--device cuda: there is no GPU that torch can use here")
        found = lab.kept(
            self.which,
            store=str(self.runs),
            use=use,
            settings=settings(self.set),
            seed=seed,
            device=self.device,
        )
        found.model.eval()
        return found


def tokens_of(found):
    """How a kept model's text becomes numbers."""
    from .. import data

    try:
        return data.tokens_of(found.notes)
    except ImportError as error:
        raise UsageError(str(error)) from None


def encoded(tokens, prompt: str, unknown: str) -> list[int]:
    """A prompt as numbers; symbols without one are named."""
    try:
        return tokens.encode(prompt, unknown=unknown).tolist()
    except ValueError as error:
        said = str(error).removeprefix("encode(): ").replace("unknown='skip'", "--unknown skip")
        raise UsageError(f"--prompt: {said}") from None
