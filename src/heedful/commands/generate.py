"""`heedful generate`: text from a model that a study trained, or is training."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro
from rich.console import Console

from .common import Number, UsageError, choose, print_json
from .using import UsesModel, encoded, tokens_of

Several = Annotated[tuple[str, ...], tyro.conf.arg(metavar="TEXT"), tyro.conf.UseAppendAction]


@dataclass
class Generate(UsesModel):
    """Text from a trained model, also while its training goes on."""

    prompt: Several = ()
    """How the text begins; as often as you like. None, or an empty one: it begins by itself."""
    length: int = 200
    """New tokens (characters, unless the model was trained on pieces)."""
    temperature: float = 1.0
    """Divides the logits: below 1 more cautious, 0 always the likeliest."""
    top_p: float = 1.0
    """Draw from the smallest set of tokens whose chances add up to this; 1: from all."""
    top_k: Number = None
    """Draw from so many of the likeliest tokens; all unless given."""
    seed: Number = None
    """Of the draws: the same seed gives the same text. Any unless given."""
    model_seed: Number = None
    """The seed the model was trained with; the first there is unless given."""
    unknown: str = "error"
    """Symbols of the prompt that the model never saw: error, or skip."""
    stop: Several = ()
    """End the text where this is written; as often as you like."""
    stream: bool = False
    """Print each token as it comes."""
    json: bool = False
    """Print JSON."""

    def run(self, console: Console) -> int:
        import torch

        self._check()
        found = self.kept("text", seed=self.model_seed)
        tokens = tokens_of(found)
        prompts = list(self.prompt) or [""]
        rows = [encoded(tokens, prompt, self.unknown) for prompt in prompts]
        seed = self.seed if self.seed is not None else int(torch.randint(2**31, ()))
        options = {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "stop": list(self.stop) or None,
            "decode": tokens.decode,
            "start": self._start(tokens),
        }
        texts = []
        for place, row in enumerate(rows):
            if self.stream and place:
                print("\n")
            if self.stream:
                said = ""
                print(shown := tokens.decode(row), end="", flush=True)
                for part in _streamed(found.model, tokens, row, self.length, seed + place, options):
                    print(part, end="", flush=True)
                    said += part
                texts.append(shown + said)
            else:
                text = found.model.generate(row, self.length, seed=seed + place, **options)
                texts.append(tokens.decode(text))
        if self.json:
            written = [
                {"prompt": tokens.decode(row), "text": text[len(tokens.decode(row)) :], "seed": seed + place}
                for place, (row, text) in enumerate(zip(rows, texts, strict=True))
            ]
            print_json({"model": str(found), "file": str(found.path), "texts": written})
        elif self.stream:
            print()
        else:
            print("\n\n".join(texts))
        if not self.json:
            print(f"{found}; --seed {seed}", file=sys.stderr)
        return 0

    def _check(self) -> None:
        from ..models.sampling import check_sampling

        choose("--unknown", self.unknown, ("error", "skip"))
        if self.json and self.stream:
            raise UsageError("--json and --stream do not go together: JSON comes whole")
        if self.length < 0:
            raise UsageError(f"--length is {self.length}; it takes 0 or more")
        if "" in self.stop:
            raise UsageError("--stop is empty; it would end every text at once")
        try:
            check_sampling(self.temperature, self.top_k, self.top_p)
        except ValueError as error:
            raise UsageError(f"--{str(error).replace('_', '-', 1)}") from None

    @staticmethod
    def _start(tokens) -> int:
        """What an empty prompt is continued from: the end of a line, where the model knows one."""
        return int((tokens.encode("\n", unknown="skip").tolist() or [0])[0])


def _streamed(model, tokens, row: list[int], length: int, seed: int, options) -> Iterator[str]:
    """What each new token adds to the text; bytes of an unfinished character wait for the rest."""
    codes, said = [], ""
    for draw in model.stream(row, length, seed=seed, alternatives=0, **options):
        codes.append(draw.token)
        text = tokens.decode(codes)
        if text.endswith("�") and not draw.ended:
            continue
        yield text[len(said) :]
        said = text
