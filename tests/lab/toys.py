"""Small studies for the tests of the lab; importable by worker processes."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from heedful.lab import Count, Figure, Trained, study
from heedful.models import Autoencoder
from heedful.training import Experiment


@study("toy-line", "Does a steeper line rise faster?", source="nobody", cost={"quick": "1 s"})
@dataclass
class Line:
    slope: Literal["flat", "steep"] = "flat"
    steps: Count = 5
    rate: float = 0.1
    wide: bool = False
    tags: tuple[str, ...] = ()
    limit: int | None = None

    axes = ("slope",)
    quick = {"steps": 2}
    seeds = {"quick": 2, "full": 4}
    metrics = {"height": "how high, points", "noise": "what was added"}
    published = {("steep",): {"height": Figure(5.0, std=0.1, runs=10, within=0.5)}}

    def run(self, seed, lab):
        noise = float(torch.randn(())) * 0.01
        for step in range(self.steps):
            lab.log(step, height=step * (self.slope == "steep"))
        return {"height": self.steps * (self.slope == "steep") + noise, "noise": noise}

    def run_many(self, seeds, desks):
        found = []
        for seed, desk in zip(seeds, desks, strict=True):
            torch.manual_seed(seed)
            found.append(self.run(seed, desk))
        return found


@study("toy-trouble", "What becomes of errors?", source="nobody")
@dataclass
class Trouble:
    kind: Literal["fine", "raises", "nothing", "wrong"] = "fine"

    axes = ("kind",)
    metrics = {"value": "a number"}

    def run(self, seed, lab):
        if self.kind == "raises" and seed == 1:
            raise ZeroDivisionError("one is a bad seed")
        return {"fine": {"value": 1.0}, "raises": {"value": 2.0}, "nothing": {}, "wrong": 3.0}[self.kind]


@study("toy-killed", "What is left after a kill?", source="nobody")
@dataclass
class Killed:
    folder: str = ""

    metrics = {"value": "a number"}

    def run(self, seed, lab):
        with (Path(self.folder) / "visits").open("a") as file:
            file.write(f"{seed}\n")
        if seed == 2 and not (Path(self.folder) / "second").exists():
            (Path(self.folder) / "second").touch()
            lab.log(0, loss=1.0)
            lab.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"value": float(seed)}


@study("toy-slow", "How long is a while?", source="nobody")
@dataclass
class Slow:
    seconds: float = 0.2

    metrics = {"value": "a number"}

    def run(self, seed, lab):
        time.sleep(self.seconds)
        return {"value": float(seed)}


@study("toy-keeper", "Which model is kept?", source="nobody")
@dataclass
class Keeper:
    wide: Literal["narrow", "wide"] = "narrow"

    axes = ("wide",)
    metrics = {"value": "a number"}

    def run(self, seed, lab):
        torch.manual_seed(seed)
        model = Autoencoder(4, [2 if self.wide == "narrow" else 3])
        lab.keep(model, use="classes", classes=["cat", "dog"])
        return {"value": float(seed)}


@study("toy-stack", "What becomes of a stack when one of its seeds fails?", source="nobody")
@dataclass
class Stack(Trained):
    metrics = {"loss": "the last one"}

    def experiment(self, device, seed):
        x = torch.ones(4, 2)
        return Experiment(
            model=lambda: nn.Linear(2, 1),
            loss=lambda model, _: model(x).square().mean(),
            batches=[None],
            optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
            epochs=3,
        )

    def found(self, outcome):
        if outcome.seed == 2:
            raise ZeroDivisionError("two is a bad seed")
        return {"loss": outcome.history.last["loss"]}
