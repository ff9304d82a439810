"""Tokens of a text: of a trained GPT, or words that listen to words spelled alike."""

from __future__ import annotations

import itertools
import re
from typing import Any

import torch

from ... import data
from ...attention import Everyone
from ...attention.similarity import Softmax
from ...attention.weights import weigh
from ...lab import Kept
from ...phrases import parse_neighbors
from .models import changed
from .seen import Call, Seen
from .view import View

LONGEST = 512  # tokens whose weights are held at once, every layer and head of them
# Vectors of length 1 have no spread that 1/√d would undo: β = 1 weighs e^4 for the same word, 1 for none.
SHARP = 4.0


def look(view: View, found: Kept | None) -> Seen:
    return _words(view) if found is None else _model(view, found)


def _neighbors(view: View):
    return None if view.neighbors == "own" else parse_neighbors(view.neighbors, width=view.window)


def _model(view: View, found: Kept) -> Seen:
    tokens = data.tokens_of(found.notes)
    codes = tokens.encode(view.text, unknown="error")
    gpt: Any = found.model
    seen = codes[-min(LONGEST, gpt.block or LONGEST) :]
    model, call = changed(gpt, view, _neighbors(view), len(seen))
    with torch.inference_mode():
        weights = model.attention_maps(seen)
    about = [str(found), str(call)]
    if len(seen) < len(codes):
        about.append(f"the last {len(seen)} of {len(codes)} tokens: it sees no more at once")
    return Seen(list(weights), [tokens.decode([code]) for code in seen.tolist()], about, call)


def _words(view: View) -> Seen:
    """Words as bags of their pairs of letters: q_i = k_i, so that those spelled alike are similar."""
    words = re.findall(r"\w+|[^\w\s]", view.text)[-LONGEST:]
    pairs = [[a + b for a, b in itertools.pairwise(f" {word.lower()} ")] for word in words]
    place = {pair: n for n, pair in enumerate(dict.fromkeys(pair for word in pairs for pair in word))}
    x = torch.zeros(len(words), len(place))
    for row, word in zip(x, pairs, strict=True):
        for pair in word:
            row[place[pair]] += 1
    x = (x / x.norm(dim=1, keepdim=True))[None]  # (1 head, words, pairs)
    similarity = view.similar(Softmax(SHARP), SHARP)
    neighbors = _neighbors(view) or Everyone()
    call = Call(1, len(words), x.shape[-1], similarity, neighbors)
    weights = weigh(x, x, similarity=similarity, neighbors=neighbors)
    about = ["words that listen to words spelled alike", str(call)]
    return Seen([weights], words, about, call, {"spaced": True})
