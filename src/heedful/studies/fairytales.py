"""A small GPT reads one book until it can recite it."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

from .. import data
from ..lab import Count, Figure, Rate, Share, study
from ..lab.figures import COLOURS, canvas
from ..models import GPT
from ..phrases import suggestion
from ..probes import copied
from ..training import Checkpoint, Windows, train

SECONDS = 20.0  # from one checkpoint, and one model for `heedful generate`, to the next
# A public training log: the loss of single steps, counted from 0, and means over epochs of 4,219 steps.
LOG = {49: 2.212, 99: 1.923, 199: 1.528, 499: 1.208, 999: 0.965, 1999: 0.655, 3999: 0.338}
EPOCHS = (0.752, 0.252, 0.198, 0.177, 0.165)
# Temperatures and top-p are the course's; so is the second prompt.
PROMPTS = (
    ("Once upon a time", 0.7, 0.9),
    ("Yesterday I went to the ", 1.0, 0.9),
    ("The king said", 0.75, 0.95),
    ("There was once", 0.65, 0.85),
)
SAMPLES = 32  # continuations by which copying is measured, of each kind of prompt
READ, UNREAD, HUMAN = "copied, pages read", "copied, pages unread", "copied, the author"


@study(
    "fairytales",
    "Does a small language model write, or recite?",
    source="University of Amsterdam, Deep Learning 1, 2024, assignment 2, 2; a public training log of it",
    cost={"quick": "15 s", "full": "10 min on a GPU"},
)
@dataclass
class Fairytales:
    """GPT-mini on Grimms' tales, character by character, with the settings of the course.

    A stretch in the middle of the text (`held` of it) is not trained on. `copied` is the longest stretch of a
    continuation that stands in the training text, letter for letter: of prompts from pages it read, and of
    prompts from the pages it did not. What the author wrote there shares some stretches with the rest, too:
    that is what copying is to be compared with. `text` may be the path of a file of your own.
    """

    text: str = "fairytales"
    tokens: Literal["characters", "bpe"] = "characters"
    size: Literal["nano", "micro", "mini"] = "mini"
    position: Literal["rotary", "learned", "sinusoidal", "alibi", "relative", "t5", "none"] = "rotary"
    norm: Literal["rms", "layer"] = "rms"
    similarity: str = "softmax"
    block: Count = 128
    dropout: Share = 0.1
    # The course means to shrink what ends a branch, and finds it by a name that only attention's has.
    shrunk: Literal["all", "attention", "none"] = "attention"
    epochs: Count = 5
    steps: Count | None = None  # instead of epochs
    batch: Count = 128
    rate: Rate = 5e-4
    decay: Rate = 0.1
    held: Share = 0.02
    pieces: Count = 1024  # of bpe
    characters: Count | None = None  # the beginning of the text only
    every: Count = 500  # steps from one look at unread pages and at copying to the next
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"  # bfloat16 on a GPU
    compiled: bool = False  # by torch.compile

    axes = ("text", "tokens", "size")
    quick = {
        "steps": 300, "batch": 24, "block": 32, "characters": 2000, "held": 0.15, "dropout": 0.0,
        "rate": 5e-3, "every": 75,
        "axes": {"text": ["python-docs"], "tokens": ["characters"], "size": ["nano"]},
    }  # fmt: skip
    full = {"axes": {"tokens": ["characters"], "size": ["mini"]}}
    seeds = {"quick": 2, "full": 1}
    metrics = {
        "unread": "loss on pages held out at the end, nats a token",
        "train": "loss in the last epoch (or the last tenth of the steps)",
        "copied": "longest stretch copied in a continuation of pages read, characters, mean",
        "copied unread": "the same for prompts from pages unread",
        "copied author": "the same for what the author wrote there, as long",
        "verbatim": "continuations of pages read that are in the book as a whole, %",
        **{f"step {step}": f"training loss around step {step}" for step in (999, 3999)},
        **{f"epoch {n}": f"mean training loss of epoch {n}" for n in range(1, 1 + len(EPOCHS))},
    }
    published = {
        ("fairytales", "characters", "mini"): {
            **{f"step {step}": Figure(LOG[step], within=0.05 * LOG[step]) for step in (999, 3999)},
            **{f"epoch {n}": Figure(loss, within=0.05 * loss) for n, loss in enumerate(EPOCHS, 1)},
        }
    }

    def run(self, seed, lab):
        book = _book(self.text, self.characters, self.held, self.tokens, self.pieces)
        read, unread = book.read.to(lab.device), book.unread.to(lab.device)
        model = GPT.of_size(
            self.size,
            vocabulary=book.tokens.size,
            block=self.block,
            position=self.position,
            norm=self.norm,
            similarity=self.similarity,
            dropout=self.dropout,
            shrunk=self.shrunk,
        ).to(lab.device)
        # An epoch has as many steps as the whole text, the part held out included, has batches of windows.
        epoch = max(1, (len(read) + len(unread) - self.block) // self.batch)
        steps = self.epochs * epoch if self.steps is None else self.steps
        if len(unread) <= self.block:
            raise ValueError(
                f"fairytales: {len(unread)} tokens of {self.text} are held out, too few for a block of "
                f"{self.block}; take a longer text, a smaller block, or hold out more of it."
            )
        starts = torch.arange(0, len(unread) - self.block, max(1, self.block // 4), device=lab.device)
        windows = unread[starts[:256, None] + torch.arange(self.block + 1, device=lab.device)]
        loss = torch.compile(model.loss, dynamic=False) if self.compiled else model.loss
        keeper = _Keeper(lab, book, self._notes(book), steps)
        history = train(
            model,
            lambda model, batch: loss(*batch),
            Windows(read, length=self.block, size=self.batch, seed=seed, drop_last=True),
            torch.optim.AdamW(model.parameter_groups(self.decay), lr=self.rate, betas=(0.9, 0.95)),
            steps=steps,
            clip=1.0,
            precision=self.precision,
            evaluate=lambda model: {"unread": float(model.loss(windows))},
            every=self.every,
            callbacks=[keeper],
            checkpoint=Checkpoint(lab.folder / "checkpoint", seconds=SECONDS),
            capture=lab.device.type == "cuda" and self.precision != "float16",
            store=lab,
            progress=False,
        )
        lab.keep(model, **self._notes(book))
        losses = [row["loss"] for row in history.steps]
        found = {"unread": history.last["unread"], **_copying(model, book)}
        found |= {f"step {step}": _around(losses, step) for step in LOG}
        found |= {
            f"epoch {n + 1}": math.nan if self.steps else _mean(losses[n * epoch : (n + 1) * epoch])
            for n in range(max(len(EPOCHS), self.epochs))
        }
        lowest = min(history.epochs, key=lambda row: row["unread"])
        found |= {"unread, lowest": lowest["unread"], "step of the lowest": lowest["step"]}
        found["train"] = _mean(losses[-(epoch if self.steps is None else max(1, steps // 10)) :])
        found |= {"steps an epoch": epoch, "parameters": model.parameter_count, "unigram": book.unigram}
        written = [
            {"prompt": prompt, "temperature": temperature, "top_p": top_p, "text": text}
            for prompt, temperature, top_p in PROMPTS
            for text in _write(model, book.tokens, [prompt], 200, temperature, top_p, seed=0)
        ]
        lab.save("samples.json", json.dumps(written, ensure_ascii=False, indent=1))
        shutil.rmtree(lab.folder / "checkpoint", ignore_errors=True)
        return found

    def _notes(self, book: _Book) -> dict[str, Any]:
        return {"use": "text", "text": self.text, **book.tokens.notes()}

    @staticmethod
    def remarks(result):
        """The loss beside every step of the public log, and what was written."""
        said = []
        for key, chosen, label in result.variants():
            ours = {step: result.summary(key, f"step {step}") for step in LOG}
            steps = [f"{step}: {ours[step].mean:.3f} ({LOG[step]})" for step in LOG if ours[step] is not None]
            if steps and (chosen["text"], chosen["tokens"]) == ("fairytales", "characters"):
                said.append(f"{label}, loss at step (public log of mini): {', '.join(steps)}")
        for trial in result.trials:
            path = trial.folder / "samples.json"
            if trial.seed == min(result.run.seeds) and path.is_file():
                label = result.study.label(result.study.settings(**trial.settings))
                for sample in json.loads(path.read_text()):
                    how = f"temperature {sample['temperature']:g}, top-p {sample['top_p']:g}"
                    said.append(f"{label}, seed {trial.seed}, {how}:\n{sample['prompt']}|{sample['text']}")
        return said

    @staticmethod
    def verdict(result):
        said = []
        for key, _, label in result.variants():
            names = ("copied", "copied author", "verbatim")
            copies, author, verbatim = (result.summary(key, name) for name in names)
            if copies and author and verbatim:
                said.append(
                    f"{label} copies {copies.mean:.0f} characters on end (the author {author.mean:.0f}), "
                    f"{verbatim.mean:.0f} % of its continuations are verbatim"
                )
        return "; ".join(said)

    @staticmethod
    def figure(result):
        """The loss beside the public log, and what it copies while it learns."""
        figure, (loss, copies) = canvas(10, 3.8, ncols=2)
        longest = 0
        for colour, (key, _, label) in zip(COLOURS, result.variants(), strict=False):
            for number, trial in enumerate(t for t in result.trials if t.key == key):
                curves = result.store.curves(trial)
                named = {"label": label} if number == 0 else {}
                _line(loss, _smooth(curves.get("loss", [])), "-", colour, linewidth=1, **named)
                _line(loss, curves.get("unread", []), "--", colour)
                for style, name in (("o-", READ), ("o--", UNREAD), (":", HUMAN)):
                    _line(copies, curves.get(name, []), style, colour, markersize=3)
                longest = max(longest, *(step for step, _ in curves.get("loss", [(0, 0.0)])))
        if any(key == ("fairytales", "characters") for key in _texts(result)):
            shown = {step: value for step, value in LOG.items() if step <= longest}
            loss.plot(
                [s + 1 for s in shown],
                list(shown.values()),
                "kD",
                markerfacecolor="none",
                label="public log (mini)",
            )
        for style, name in (("-", "training"), ("--", "pages unread")):
            loss.plot([], [], style, color="gray", label=name)
        for style, name in (("o-", "from pages read"), ("o--", "from pages unread"), (":", "the author")):
            copies.plot([], [], style, color="gray", markersize=3, label=name)
        loss.set_xscale("log")
        loss.set(xlabel="step", ylabel="loss, nats a token")
        copies.set(xlabel="step", ylabel="longest stretch copied, characters", ylim=(0, None))
        for axis in (loss, copies):
            axis.legend(frameon=False, fontsize=8)
        return figure


@dataclass(frozen=True, eq=False)
class _Book:
    """A text as its reader gets it: what is trained on and what is held out, as tokens and as text."""

    tokens: data.Characters | data.Pieces
    read: torch.Tensor
    unread: torch.Tensor
    pages: str  # what was read
    unigram: float  # entropy of a token, nats: the loss of a reader who knows how frequent each one is

    def prompts(self, of: torch.Tensor, length: int, after: int) -> list[tuple[list[int], list[int]]]:
        """Evenly spread places: `length` tokens, and the `after` tokens that follow."""
        places = torch.linspace(0, len(of) - length - after, SAMPLES).long().tolist()
        return [
            (of[at : at + length].tolist(), of[at + length : at + length + after].tolist()) for at in places
        ]


@cache
def _book(name: str, characters: int | None, held: float, tokens: str, pieces: int) -> _Book:
    known = data.names("text")
    if name not in known and not Path(name).expanduser().is_file():
        there = suggestion(name, known) or "."
        raise ValueError(f"fairytales: text is {name!r}; it is {', '.join(known)}, or a file's path{there}")
    text = (data.load(name) if name in known else data.text_file(name)).text[:characters]
    if not 0 < held < 0.5:
        raise ValueError(f"fairytales: held is {held}; it is the share held out, more than 0 and below 0.5.")
    start = round((0.5 - held / 2) * len(text))
    stop = start + round(held * len(text))
    before, unread, behind = text[:start], text[start:stop], text[stop:]
    pages = before + behind
    if tokens == "bpe":
        how: data.Characters | data.Pieces = data.Pieces.learned(pages, pieces)
    else:
        how = data.Characters(sorted(set(text)), name)
    read = how.encode(pages)
    frequent = torch.bincount(read, minlength=how.size).double() / len(read)
    unigram = float(-(frequent * frequent.clamp_min(1e-30).log()).sum())
    return _Book(how, read, how.encode(unread), pages, unigram)


class _Keeper:
    """Keeps the model as it learns, so that it can be used meanwhile; looks what it copies."""

    def __init__(self, lab, book: _Book, notes: dict[str, Any], steps: int):
        self.lab, self.book, self.notes, self.steps = lab, book, notes, steps
        self.kept = time.monotonic()

    def __call__(self, now) -> None:
        if now.row is not None:
            found = _copying(now.model, self.book)
            names = {"copied": READ, "copied unread": UNREAD, "copied author": HUMAN}
            self.lab.log(now.step, **{shown: found[name] for name, shown in names.items()})
        if now.row is not None or time.monotonic() - self.kept > SECONDS:
            self.lab.keep(now.model, **self.notes)
            self.lab.progress(now.step / self.steps)
            self.kept = time.monotonic()


def _copying(model: GPT, book: _Book) -> dict[str, float]:
    """How long the stretches are that continuations copy, in characters, and how many are but a copy."""
    block = model.config["block"]
    quarter = max(1, block // 4)
    found: dict[str, float] = {}
    for name, source in (("", book.read), (" unread", book.unread)):
        after = min(block - quarter, len(source) - quarter)
        prompts = book.prompts(source, quarter, after)
        written = _write(model, book.tokens, [prompt for prompt, _ in prompts], after, 0.7, 0.9, seed=0)
        copies = copied(written, book.pages)
        found[f"copied{name}"] = _mean([copy.length for copy in copies])
        found[f"verbatim{name}"] = 100 * _mean([copy.verbatim for copy in copies])
    author = copied([book.tokens.decode(truth) for _, truth in prompts], book.pages)
    return found | {"copied author": _mean([copy.length for copy in author])}


def _write(
    model: GPT, tokens, prompts: Sequence[Any], length: int, temperature, top_p, seed: int
) -> list[str]:
    rows = [tokens.encode(p, unknown="skip").tolist() if isinstance(p, str) else p for p in prompts]
    texts = model.generate(rows, length, temperature=temperature, top_p=top_p, seed=seed)
    return [tokens.decode(text[len(row) :]) for text, row in zip(texts, rows, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _around(losses: list[float], step: int) -> float:
    """The loss at a step counted from 0, as the mean of the steps within 2 % of it: one batch is noise."""
    reach = step // 50
    return _mean(losses[step - reach : step + reach + 1]) if step + reach < len(losses) else math.nan


def _smooth(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Means over stretches that grow with the step, for an axis that is logarithmic."""
    found: list[tuple[int, float]] = []
    at = 0
    while at < len(curve):
        part = curve[at : at + 1 + at // 20]
        found.append((part[len(part) // 2][0], _mean([value for _, value in part])))
        at += len(part)
    return found


def _line(axis, curve: list[tuple[int, float]], style: str, colour: str, **options) -> None:
    if curve:
        axis.plot(*zip(*curve, strict=True), style, color=colour, **options)


def _texts(result) -> set[tuple[str, str]]:
    return {(chosen["text"], chosen["tokens"]) for _, chosen, _ in result.variants()}
