"""Longer than ever seen: which ways of telling position still work."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch.nn import functional as F

from .. import data
from ..lab import Count, Trained, study
from ..lab.figures import COLOURS, canvas
from ..models import GPT
from ..training import Experiment, Windows

FACTORS = (1, 2, 4, 8)


@study(
    "extrapolation",
    "Which positions work beyond the length of training?",
    source="University of Amsterdam, Deep Learning 1, 2024, 2.4; Press, Smith & Lewis, ICLR 2022",
    cost={"quick": "45 s", "full": "1 h"},
)
@dataclass
class Extrapolation(Trained):
    """A small GPT reads windows of `length` characters, and is then given up to eight times as many.

    Told is the loss of the same characters of held-out text (a quarter of `length` at the end of each
    window), seen after less context or more. A net that extrapolates keeps its loss, or lowers it. A table of
    learned positions has rows that were never trained.
    """

    position: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] = "rotary"
    text: Literal["python-docs", "fairytales", "shakespeare"] = "fairytales"
    length: Count = 64
    layers: Count = 4
    dim: Count = 128
    steps: Count = 3000
    batch: Count = 64

    axes = ("position",)
    quick = {"text": "python-docs", "length": 24, "layers": 2, "dim": 48, "steps": 500, "batch": 24}
    seeds = {"quick": 1, "full": 3}
    metrics = {
        "8×": "loss at eight times the training length, nats a character",
        "1×": "at the training length",
        "rise": "from the one to the other",
    }

    def experiment(self, device, seed):
        codes, symbols = _codes(self.text, str(device))
        held = len(codes) // 10
        training, rest = codes[:-held], codes[-held:]

        def loss(model, batch):
            x, y = batch
            return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

        def after(model):
            found = {f"{factor}×": _loss(model, rest, self.length, factor) for factor in FACTORS}
            return found | {"rise": found[f"{FACTORS[-1]}×"] - found["1×"]}

        return Experiment(
            model=lambda: GPT(
                symbols,
                layers=self.layers,
                heads=4,
                dim=self.dim,
                block=FACTORS[-1] * self.length,
                position=self.position,
                dropout=0.0,
            ).to(device),
            loss=loss,
            batches=lambda seed: Windows(training, length=self.length, size=self.batch, seed=seed),
            optimizer=lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95)),
            steps=self.steps,
            clip=1.0,
            test=after,
        )

    @staticmethod
    def verdict(result):
        found = {
            chosen["position"]: summary.mean
            for key, chosen, _ in result.variants()
            if (summary := result.summary(key, "rise")) is not None
        }
        if not found:
            return ""
        kept = [name for name, rise in found.items() if rise < 0.1]
        lost = [f"{name} (+{rise:.2f})" for name, rise in found.items() if rise >= 0.1]
        kept, lost = (", ".join(names) or "none" for names in (kept, lost))
        return f"at eight times the length {kept} hold; lost are {lost}"

    @staticmethod
    def figure(result):
        figure, axis = canvas(6.5, 3.8)
        for colour, (key, chosen, _) in zip(COLOURS, result.variants(), strict=False):
            found = [result.summary(key, f"{factor}×") for factor in FACTORS]
            if None not in found:
                axis.plot(
                    FACTORS,
                    [s.mean for s in found],
                    "o-",
                    color=colour,
                    label=chosen["position"],
                    markersize=4,
                )
        axis.set_xscale("log", base=2)
        axis.set_xticks(FACTORS, [f"{factor}×" for factor in FACTORS])
        axis.set_xlabel("length over that of training")
        axis.set_ylabel("loss, nats a character")
        axis.legend(title="position", frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        return figure


def _loss(model: GPT, codes: torch.Tensor, length: int, factor: int, count: int = 32) -> float:
    """Of the last length/4 characters before `count` places of a text, after `factor` times the length."""
    ends = torch.linspace(FACTORS[-1] * length + 1, len(codes), count).long().tolist()
    windows = torch.stack([codes[end - factor * length - 1 : end] for end in ends])
    logits, part = model(windows[:, :-1]), -(length // 4)
    return float(F.cross_entropy(logits[:, part:].flatten(0, 1), windows[:, part:].flatten()))


@cache
def _codes(name: str, device: str):
    text = data.load(name)
    return text.codes.to(device), len(text.vocabulary)
