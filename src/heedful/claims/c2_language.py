"""C2, second half: language models beyond their training length, as parrots, and at other temperatures."""

from __future__ import annotations

import re
from functools import lru_cache

import torch
from torch.nn import functional as F

from .. import probes
from ..models import GPT
from .claim import claim
from .documents import C
from .evidence import at_least, at_most, curve, note
from .studies import judged

FACTORS = (1, 2, 4, 8)  # lengths over that of training


@claim(
    "C2.7",
    C,
    "Relative positions extrapolate to longer sequences; learned absolute ones do not.",
    stated="relative: yes; learned absolute: no",
    corrected="Learned positions do not. But being relative is not enough: rotary positions lose about as "
    "much. ALiBi, which lets far words fade, goes on.",
    once=True,
)
def extrapolation(draw, *, results=None):
    found = judged("extrapolation", draw.runs) if results is None else results
    at = {
        position: [found.of(position=position)()(f"{factor}×") for factor in FACTORS]
        for position in ("learned", "sinusoidal", "rotary", "alibi", "none")
    }
    rise = {position: losses[-1] - losses[0] for position, losses in at.items()}
    yield note("judged", found.about)
    yield at_least("learned: loss at 8× the length less at 1×, nats", rise["learned"], 0.15)
    yield at_most("ALiBi: the same", rise["alibi"], 0.15)
    yield at_most("rotary: the same", rise["rotary"], 0.15, role="detail")
    yield at_least("rotary: the same, at least", rise["rotary"], 0.15, role="corrected")
    for position in ("sinusoidal", "none"):
        yield note(f"{position}: the same", rise[position])
    for position, losses in at.items():
        yield curve(
            "loss beyond the length of training",
            position,
            FACTORS,
            losses,
            across="length over that of training",
            up="loss, nats a character",
            log="x",
        )


class Parrot:
    """A two-layer GPT over a page of text, read again and again; the page, and pages it has never seen."""

    def __init__(self, seed: int, steps: int = 150, length: int = 400):
        from .. import data

        torch.manual_seed(seed)
        text = re.sub(r"\s+", " ", data.load("python-docs").text)
        start = int(torch.randint(1000, len(text) // 2 - length, (1,)))
        self.book, self.other = text[start : start + length], text[len(text) // 2 :][:20_000]
        self.symbols = sorted(set(self.book + self.other))
        tokens = torch.tensor([self.symbols.index(c) for c in self.book])
        self.model = GPT(len(self.symbols), layers=2, heads=2, dim=64, block=32, dropout=0.0)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=4e-3, betas=(0.9, 0.95))
        for _ in range(steps):
            places = torch.randint(len(tokens) - 32, (24,))
            optimizer.zero_grad()
            self.model.loss(tokens[places[:, None] + torch.arange(33)]).backward()
            optimizer.step()

    def prompts(self, of: str, count: int = 16, length: int = 16) -> list[str]:
        text = self.book if of == "book" else self.other
        step = (len(text) - 64) // count
        return [text[i * step : i * step + length] for i in range(count)]

    def write(self, prompts: list[str], length: int = 24, **options) -> list[str]:
        tokens = [[self.symbols.index(c) for c in prompt] for prompt in prompts]
        found = self.model.generate(tokens, length=length, window=32, **options)
        return [
            "".join(self.symbols[i] for i in row.tolist()[len(p) :])
            for p, row in zip(prompts, found, strict=True)
        ]

    def cost(self, prompts: list[str], texts: list[str]) -> float:
        """Nats a symbol the model itself would have given to what was written."""
        rows = torch.tensor(
            [[self.symbols.index(c) for c in p + t] for p, t in zip(prompts, texts, strict=True)]
        )[:, :33]
        with torch.no_grad():
            losses = F.cross_entropy(self.model(rows[:, :-1]).mT, rows[:, 1:], reduction="none")
        return float(losses[:, len(prompts[0]) - 1 :].mean())


@lru_cache(32)
def parrot(seed: int) -> Parrot:
    """Trained once for the claims that listen to it."""
    return Parrot(seed)


def mean_copy(texts: list[str], book: str) -> float:
    """The length of the longest stretch of a text that is in the book, letter for letter; on average."""
    return sum(copy.length for copy in probes.copied(texts, book)) / len(texts)


@claim(
    "C2.8",
    C,
    "The small language model parrots its corpus.",
    stated="it repeats its training text",
)
def parroting(draw, *, model=parrot, results=None):
    if draw.first:
        study = judged("fairytales", draw.runs) if results is None else results
        of = study.of()()
        yield note("judged", study.about)
        yield at_least(
            "longest stretch copied by the model over that of the author's own unread pages",
            of("copied") / of("copied author"),
            1.3,
        )
    bird = model(draw.seed)
    known, strange = bird.prompts("book"), bird.prompts("other")
    from_book, elsewhere = bird.write(known, temperature=0), bird.write(strange, temperature=0)
    truth = [bird.book[(at := bird.book.index(p) + len(p)) : at + 24] for p in known]
    rate = sum(a == b for a, b in zip(from_book, truth, strict=True)) / len(known)
    copied = {
        name: mean_copy(texts, bird.book) for name, texts in (("book", from_book), ("strange", elsewhere))
    }
    unread = [bird.other[i * 500 : i * 500 + 24] for i in range(30)]
    chance = max(1.0, mean_copy(unread, bird.book))
    yield note("judged too", "a direct measurement: two layers, a page of 400 letters")
    yield at_least("prompts from the page: share continued to the letter for 24 letters", rate, 0.3)
    yield at_least("prompts from the page: longest stretch copied, of 24", copied["book"], 14)
    yield at_least(
        "strange prompts: stretch copied over that of pages it never saw", copied["strange"] / chance, 1.2
    )
    yield note("longest stretch that pages it never saw share with the page", chance)
    yield note("strange prompts: longest stretch copied", copied["strange"])


TEMPERATURES = (0.3, 0.7, 1.0, 1.5, 2.0)
DOCUMENT = ((0.7, 0.9), (1.0, 0.9), (0.75, 0.95), (0.65, 0.85))


@claim(
    "C2.10",
    C,
    "Temperature and top-p made no difference to what the model writes.",
    stated="no difference",
    corrected="Both do: the hotter, the less is copied and the more is new; a smaller top-p takes that "
    "back. Between the settings tried in the document the difference is smaller, because a model that "
    "knows its text by heart is sure of the next letter.",
)
def temperature(draw, *, model=parrot):
    bird = model(draw.seed)
    prompts = bird.prompts("book")

    def look(**options) -> tuple[float, float, float]:
        texts = bird.write(prompts, seed=draw.seed, **options)
        grams = [t[i : i + 6] for t in texts for i in range(len(t) - 5)]
        copied = sum(gram in bird.book for gram in grams) / len(grams)
        return len(set(grams)) / len(grams), copied, bird.cost(prompts, texts)

    hot = {t: look(temperature=t) for t in TEMPERATURES}
    nucleus = {p: look(temperature=1.5, top_p=p) for p in (0.3, 0.6, 0.9, 1.0)}
    tried = [look(temperature=t, top_p=p)[1] for t, p in DOCUMENT]
    yield at_most("share copied, difference over temperatures 0.3 to 1.5", hot[0.3][1] - hot[1.5][1], 0.1)
    yield at_least("share copied, 0.3 less 1.5", hot[0.3][1] - hot[1.5][1], 0.2, role="corrected")
    yield at_least(
        "cost of what is written in nats, 1.5 less 0.3", hot[1.5][2] - hot[0.3][2], 0.2, role="corrected"
    )
    yield at_least(
        "at 1.5: share copied, top-p 0.3 less top-p 1",
        nucleus[0.3][1] - nucleus[1.0][1],
        0.2,
        role="corrected",
    )
    yield note(
        "share copied over the document's four settings, largest less smallest", max(tried) - min(tried)
    )
    for place, name in enumerate(("distinct six-grams", "copied six-grams")):
        yield curve(
            "temperature",
            name,
            TEMPERATURES,
            [hot[t][place] for t in TEMPERATURES],
            across="temperature",
            up="share",
        )
        yield curve(
            "top-p at temperature 1.5",
            name,
            list(nucleus),
            [n[place] for n in nucleus.values()],
            across="top-p",
            up="share",
        )
