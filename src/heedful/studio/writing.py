"""Text as a model writes it: each token with its probability and what it beat; then what is copied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import data
from ..lab import Kept
from ..models.sampling import check_sampling
from ..probes import copied
from .forms import number

LONGEST = 1000  # tokens asked for at once
LEAST = 20  # characters: shorter stretches are everybody's
ROUNDS = 6


@dataclass(frozen=True)
class Wish:
    """How to write, found good."""

    prompt: str = ""
    length: int = 200
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None

    @classmethod
    def read(cls, given: dict[str, str]) -> Wish:
        """From a form; ValueError says which field is wrong."""
        wish = cls(
            given.get("prompt", "").replace("\r\n", "\n"),
            number(given, "length", int, cls.length),
            number(given, "temperature", float, cls.temperature),
            number(given, "top_p", float, cls.top_p),
            number(given, "top_k", int, None),
            number(given, "seed", int, None),
        )
        if not 1 <= wish.length <= LONGEST:
            raise ValueError(f"length is {wish.length}; it takes 1 to {LONGEST}.")
        if len(wish.prompt) > 4000:
            raise ValueError(f"prompt has {len(wish.prompt)} characters; it takes 4000 at most.")
        if wish.seed is not None and not 0 <= wish.seed < 2**31:
            raise ValueError(f"seed is {wish.seed}; it takes 0 to {2**31 - 1}.")
        check_sampling(wish.temperature, wish.top_k, wish.top_p)
        return wish


def write(found: Kept, wish: Wish) -> Iterator[dict[str, Any]]:
    """A record a token: its text, probability, chance to be drawn, the alternatives; at last the copies."""
    tokens = data.tokens_of(found.notes)
    row = tokens.encode(wish.prompt, unknown="error").tolist()
    start = int((tokens.encode("\n", unknown="skip").tolist() or [0])[0])
    options = {"temperature": wish.temperature, "top_k": wish.top_k, "top_p": wish.top_p, "seed": wish.seed}
    model: Any = found.model
    codes, said = [], ""
    for draw in model.stream(row, wish.length, alternatives=4, start=start, **options):
        codes.append(draw.token)
        text = tokens.decode(codes)
        if text.endswith("�") and not draw.ended:
            text = said  # bytes of an unfinished character wait for the rest
        yield {
            "text": text[len(said) :],
            "probability": draw.probability,
            "chance": draw.chance,
            "beat": [
                {"text": tokens.decode([one.token]), "probability": one.probability}
                for one in draw.alternatives
            ],
        }
        said = text
    pages = book(found)
    yield {
        "copies": [] if pages is None else copies(said, pages),
        "book": found.notes.get("text") if pages else None,
    }


def book(found: Kept) -> str | None:
    """What a model was trained on, where that is a set by name: no file is opened because a model says so."""
    name = found.notes.get("text")
    if name not in data.names("text"):
        return None
    settings = found.trial.settings if found.trial is not None else {}
    try:
        return data.load(name).text[: settings.get("characters")]
    except OSError:
        return None


def copies(text: str, pages: str, least: int = LEAST) -> list[tuple[int, int]]:
    """(start, length) of stretches that stand in a book, the longest first taken, in their order.

    >>> copies("I say once upon a time, and then: there was a king", "once upon a time there was a king", 10)
    [(6, 16), (33, 17)]
    """
    pieces, found = [(0, text)], []
    for _ in range(ROUNDS):
        pieces = [(at, piece) for at, piece in pieces if len(piece) >= least]
        if not pieces:
            break
        rest = []
        for (at, piece), copy in zip(pieces, copied([piece for _, piece in pieces], pages), strict=True):
            if copy.length >= least:
                end = copy.start + copy.length
                found.append((at + copy.start, copy.length))
                rest += [(at, piece[: copy.start]), (at + end, piece[end:])]
        pieces = rest
    return sorted(found)
