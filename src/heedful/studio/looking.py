"""Who listens to whom in a text, under a similarity and neighbors of one's choice, and how it is computed.

With a trained model, its queries and keys; without one, words that listen to words spelled alike.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import itertools
import math
import re
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .. import data
from ..attention import Everyone, Plan, explain
from ..attention.similarity import Softmax
from ..attention.weights import weigh
from ..lab import Kept
from ..lab.looking import attention_page
from ..phrases import parse_neighbors, parse_similarity
from .forms import number

MOST = 128  # tokens a page can show
SIMILARITIES = ("softmax", "argmax", "uniform", "polynomial(degree=2)", "elu")
NEIGHBORS = ("causal", "everyone", "window", "causal & window")
LONGEST = 10**6


@dataclass(frozen=True)
class View:
    """What to look at and how, found good. `own` leaves a model's similarity and neighbors as they are."""

    text: str = "the cat sat on the mat and the bat sat on the hat"
    similarity: str = "own"
    neighbors: str = "own"
    beta: float = 1.0  # times 1/√d
    window: int = 8
    length: int | None = None  # to plan for; that of the text unless given

    @classmethod
    def read(cls, given: dict[str, str]) -> View:
        view = cls(
            given.get("text", cls.text).replace("\r\n", "\n"),
            given.get("similarity") or cls.similarity,
            given.get("neighbors") or cls.neighbors,
            number(given, "beta", float, cls.beta),
            number(given, "window", int, cls.window),
            number(given, "length", int, None),
        )
        _among("similarity", view.similarity, ("own", *SIMILARITIES))
        _among("neighbors", view.neighbors, ("own", *NEIGHBORS))
        if not view.text.strip():
            raise ValueError("text is empty; type some.")
        if len(view.text) > 4000:
            raise ValueError(f"text has {len(view.text)} characters; it takes 4000 at most.")
        if not (math.isfinite(view.beta) and 0 < view.beta <= 100):
            raise ValueError(f"beta is {view.beta:g}; it takes more than 0, up to 100.")
        if not 0 <= view.window <= MOST:
            raise ValueError(f"window is {view.window}; it takes 0 to {MOST}.")
        if view.length is not None and not 1 <= view.length <= LONGEST:
            raise ValueError(f"length is {view.length}; it takes 1 to {LONGEST}.")
        return view

    def chosen(self, dim: int, similarity: Any, neighbors: Any) -> tuple[Any, Any]:
        """Similarity and neighbors, those given where the view keeps its own."""
        if self.similarity == "softmax" or (self.similarity == "own" and isinstance(similarity, Softmax)):
            own = similarity.scale if isinstance(similarity, Softmax) else None
            scale = dim**-0.5 if own is None or self.similarity == "softmax" else own
            similarity = (
                similarity if self.beta == 1 and self.similarity == "own" else Softmax(self.beta * scale)
            )
        elif self.similarity != "own":
            similarity = parse_similarity(self.similarity)
        if self.neighbors != "own":
            neighbors = parse_neighbors(self.neighbors, width=self.window)
        return similarity, neighbors


@dataclass(frozen=True)
class Seen:
    """Weights (layers, heads, tokens, tokens), what the tokens say, and a call to plan for."""

    weights: Tensor
    tokens: list[str]
    about: str
    heads: int
    dim: int
    similarity: Any
    neighbors: Any
    position: Any = None

    def page(self) -> str:
        return attention_page(self.weights, self.tokens, about=self.about)

    def plan(self, length: int | None = None) -> Plan:
        shape = (1, self.heads, length or len(self.tokens), self.dim)
        one = torch.empty(shape, device="meta")
        return explain(
            one,
            one,
            one,
            similarity=self.similarity,
            neighbors=self.neighbors,
            position=self.position,
            device="cpu",
        )


def look(view: View, found: Kept | None) -> Seen:
    return _words(view) if found is None else _model(view, found)


def _model(view: View, found: Kept) -> Seen:
    """What the model would attend to, its other weights as they were trained."""
    tokens = data.tokens_of(found.notes)
    codes = tokens.encode(view.text, unknown="error")
    model: Any = found.model
    seen = codes[-min(MOST, model.block or MOST) :]
    first = model.blocks[0].attention
    similarity, neighbors = view.chosen(first.head_dim, first.similarity, first.neighbors)
    if similarity is not first.similarity or neighbors is not first.neighbors:
        model = copy.deepcopy(model)
        for block in model.blocks:
            block.attention._take(similarity, False)
            block.attention.neighbors = neighbors
    with torch.inference_mode():
        weights = model.attention_maps(seen)
    about = [str(found), f"{similarity}, {neighbors}"]
    if len(seen) < len(codes):
        about.append(f"the last {len(seen)} of {len(codes)} tokens: it sees no more at once")
    shown = [tokens.decode([code]) for code in seen.tolist()]
    shape = (first.heads, first.head_dim)
    return Seen(weights, shown, "; ".join(about), *shape, similarity, neighbors, first.position)


def _words(view: View) -> Seen:
    """Words as bags of their pairs of letters: q_i = k_i, so that those spelled alike are similar."""
    words = re.findall(r"\w+|[^\w\s]", view.text)[-MOST:]
    pairs = [[a + b for a, b in itertools.pairwise(f" {word.lower()} ")] for word in words]
    place = {pair: n for n, pair in enumerate(dict.fromkeys(pair for word in pairs for pair in word))}
    x = torch.zeros(len(words), len(place))
    for row, word in zip(x, pairs, strict=True):
        for pair in word:
            row[place[pair]] += 1
    x = (x / x.norm(dim=1, keepdim=True))[None]  # (1 head, words, pairs)
    # Vectors of length 1 have no spread that 1/√d would undo: β = 1 weighs e^4 for the same word, 1 for none.
    similarity, neighbors = view.chosen(1, Softmax(4.0), Everyone())
    if view.similarity == "softmax":
        similarity = Softmax(4.0 * view.beta)
    weights = weigh(x, x, similarity=similarity, neighbors=neighbors)[None]
    about = f"words that listen to words spelled alike; {similarity}, {neighbors}"
    return Seen(weights, words, about, 1, x.shape[-1], similarity, neighbors)


def policy(page: str) -> str:
    """A Content-Security-Policy that admits this page's own script and style, and nothing else."""

    def named(tag: str) -> str:
        found = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        marks = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in found]
        return " ".join(f"'sha256-{mark}'" for mark in marks)

    return (
        f"default-src 'none'; script-src {named('script')}; style-src {named('style')}; img-src data:; "
        f"base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )


def _among(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise ValueError(f"{name} is {given!r}; it is one of {', '.join(known)}.")
