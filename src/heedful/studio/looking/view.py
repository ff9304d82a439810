"""What to look at and how, as a form says it, found good."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ...attention.similarity import Similarity, Softmax
from ...phrases import parse_similarity
from ..forms import number

MOST = 128  # tokens or nodes a page can show
LONGEST = 10**6  # to plan for
SIMILARITIES = ("softmax", "argmax", "uniform", "polynomial(degree=2)", "elu")
NEIGHBORS = {
    "text": ("causal", "everyone", "window", "causal & window"),
    "picture": ("everyone", "window"),
    "graph": ("everyone", "window"),
}
PLAIN = {"words": "text", "patches": "picture", "nodes": "graph"}  # who listens without a model, and to what
KINDS = {"GPT": "text", "ViT": "picture", "GAT": "graph"}

_LIMITS: dict[str, tuple[float, float]] = {
    "beta": (0.01, 100), "window": (0, MOST), "length": (1, LONGEST), "most": (8, MOST),
    "number": (0, 10**6), "across": (2, 12),
}  # fmt: skip
_LETTERS = {"text": 4000, "edges": 20_000, "node": 200, "graph": 40, "picture": 60}


@dataclass(frozen=True)
class View:
    """Whom to ask, what to show them, what to change. `own` leaves similarity and neighbors as they are."""

    who: str = "words"  # one of PLAIN, or the number of a trial that kept a model
    kind: str = "text"
    similarity: str = "own"
    neighbors: str = "own"
    beta: float = 1.0  # times a model's own scale
    window: int = 2
    most: int = 64  # of a longer input, how much to show

    text: str = "the cat sat on the mat and the bat sat on the hat"
    length: int | None = None  # to plan for; that of the text unless given

    picture: str = "digits"  # a set of pictures, or one that was sent
    number: int = 0  # which of the set
    across: int = 8  # patches on a side, where no model says
    invert: bool = False

    graph: str = "karate"  # a graph by name, or "typed"
    edges: str = "Anna Ben\nBen Carl\nCarl Anna\nCarl Dora\nDora > Emil\nEmil Fay\nFay Dora"
    node: str = ""  # around whom to look

    @classmethod
    def read(cls, given: Mapping[str, str], kind: str) -> View:
        """From a form, for a listener of that kind; ValueError says which field is wrong."""
        found: dict[str, Any] = {"kind": kind}
        for entry in fields(cls):
            text = given.get(entry.name, "")
            if entry.name == "kind" or not text.strip():
                continue
            if entry.name in _LIMITS:
                whole = float if entry.name == "beta" else int
                found[entry.name] = _within(entry.name, number(given, entry.name, whole, None))
            elif entry.name == "invert":
                found[entry.name] = text == "yes"
            else:
                found[entry.name] = text.replace("\r\n", "\n")
        if "text" in given and not given["text"].strip():
            raise ValueError("text is empty; type some.")
        for name, most in _LETTERS.items():
            if len(found.get(name, "")) > most:
                raise ValueError(f"{name} has {len(found[name])} characters; it takes {most} at most.")
        view = cls(**found)
        _among("similarity", view.similarity, ("own", *SIMILARITIES))
        _among(f"neighbors for a {kind}", view.neighbors, ("own", *NEIGHBORS[kind]))
        return view

    def similar(self, own: Similarity, scale: float) -> Similarity:
        """The similarity chosen; `scale` is Softmax's at β = 1 where it says none of its own."""
        if self.similarity == "softmax":
            return Softmax(self.beta * scale)
        if self.similarity != "own":
            return parse_similarity(self.similarity)
        if self.beta == 1 or not isinstance(own, Softmax):
            return own  # only a softmax has a β
        return Softmax(self.beta * (scale if own.scale is None else own.scale))


def _within(name: str, value: Any) -> Any:
    low, high = _LIMITS[name]
    if not (math.isfinite(value) and low <= value <= high):
        raise ValueError(f"{name} is {value:g}; it takes {low:g} to {high:,}.")
    return value


def _among(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise ValueError(f"{name} is {given!r}; it is one of {', '.join(known)}.")
