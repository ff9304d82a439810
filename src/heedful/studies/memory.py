"""A symbol, a long wait, a question: what a recurrent net, an LSTM and a transformer still know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch.nn import functional as F

from .. import data
from ..lab import Count, study
from ..lab.figures import lines
from ..models import GPT, RNN
from ..training import Batches, train


@study(
    "memory",
    "How far back can a net remember?",
    source="IFT6135, 2022, assignment 2, 1.5; NYU Deep Learning, 2023, homework 3, 1.4",
    cost={"quick": "40 s", "full": "40 min"},
)
@dataclass
class Memory:
    """One symbol of eight, lag − 1 distractors, then the question which it was: chance is 12.5 %.

    `rnn` trains by back-propagation through time written by hand, `rnn, half` with gradients that stop after
    half the lag (or after `truncate` steps, if given): what is further back is known by accident only.
    `gradient` compares what arrives at the symbol, before training, with what arrives at the question.
    """

    model: Literal["rnn", "rnn, half", "lstm", "transformer"] = "rnn"
    lag: Literal[5, 10, 20, 50, 100, 200, 500] = 10
    truncate: Count | None = None
    hidden: Count = 64
    steps: Count = 1500
    batch: Count = 64

    axes = ("model", "lag")
    quick = {"steps": 250, "hidden": 32, "batch": 32, "axes": {"lag": [5, 50]}}
    seeds = {"quick": 1, "full": 5}
    metrics = {
        "test": "accuracy, %",
        "gradient": "gradient at the symbol before training, log₁₀",
    }

    def run(self, seed, lab):
        sets = _symbols(self.lag, str(lab.device))
        torch.manual_seed(seed)
        model = self._model(sets.symbols).to(lab.device)

        def loss(model, batch):
            x, y = batch
            return F.cross_entropy(_last(model(x)), y)

        gradient = _arriving(model, sets.train.inputs[:64], sets.train.labels[:64])
        rate = 1e-3 if self.model == "transformer" else 3e-3
        train(
            model,
            loss,
            Batches(sets.train.inputs, sets.train.labels, size=self.batch, seed=seed),
            torch.optim.Adam(model.parameters(), lr=rate),
            steps=self.steps,
            clip=1.0,
            progress=False,
            store=lab,
        )
        model.eval()
        with torch.no_grad():
            right = (_last(model(sets.test.inputs)).argmax(-1) == sets.test.labels).float().mean()
        return {"test": 100 * float(right), "gradient": gradient}

    def _model(self, symbols: int):
        if self.model == "transformer":
            return GPT(symbols, layers=2, heads=4, dim=self.hidden, block=max(16, self.lag + 1), dropout=0.0)
        if self.model == "lstm":
            return RNN(symbols, hidden=self.hidden, kind="lstm", predict="last")
        truncate = self.truncate or (max(1, self.lag // 2) if self.model == "rnn, half" else None)
        return RNN(symbols, hidden=self.hidden, predict="last", truncate=truncate, backward="by hand")

    @staticmethod
    def verdict(result):
        said = []
        for model in ("rnn", "rnn, half", "lstm", "transformer"):
            found = {
                chosen["lag"]: summary.mean
                for key, chosen, _ in result.variants()
                if chosen["model"] == model and (summary := result.summary(key, "test")) is not None
            }
            learned = [lag for lag, accuracy in found.items() if accuracy > 90]
            if found:
                said.append(f"{model}: {f'up to {max(learned)}' if learned else f'not even {min(found)}'}")
        return "remembered in nine of ten cases, steps back: " + "; ".join(said) if said else ""

    @staticmethod
    def figure(result):
        return lines(result, "lag", ["test", "gradient"], "model", log=True)


def _last(logits: torch.Tensor) -> torch.Tensor:
    return logits if logits.dim() == 2 else logits[:, -1]


def _arriving(model, x: torch.Tensor, y: torch.Tensor) -> float:
    """log₁₀ ‖∂loss/∂(the first symbol's embedding)‖ over ‖∂loss/∂(the question's)‖."""
    table = next(m for m in model.modules() if isinstance(m, torch.nn.Embedding))
    seen: list[torch.Tensor] = []

    def keep(layer, inputs, output):
        output.requires_grad_(True).retain_grad()
        seen.append(output)
        return output

    handle = table.register_forward_hook(keep)
    F.cross_entropy(_last(model(x)), y).backward()
    handle.remove()
    model.zero_grad()
    gradient = seen[0].grad
    assert gradient is not None
    first, last = float(gradient[:, 0].norm()), float(gradient[:, -1].norm())
    return math.log10(max(first, 1e-30) / max(last, 1e-30))


@cache
def _symbols(lag: int, device: str):
    return data.recall(lag=lag, train=4000, test=500).to(device)
