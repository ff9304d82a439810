"""A training loop that never clears its gradients, and the same with the missing line."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from ..lab import Count, Rate, study
from ..lab.figures import COLOURS, canvas


@study(
    "zero-grad",
    "What does a loop without zero_grad do?",
    source="University of Toronto CSC413, debugging a training loop",
    cost={"quick": "2 s", "full": "10 s"},
)
@dataclass
class ZeroGrad:
    """Without clearing, step t follows the sum of all gradients so far: momentum that never forgets.

    On a quadratic bowl that is a swing without friction, v ← v + λθ, θ ← θ − ηv: it never settles, yet as
    long as ηλ < 4 it does not grow either. Noise, as from small batches, feeds the swing at every step, and
    the loss grows. A network learns quickly at first, then is thrown out of where it was again and again.
    """

    cleared: Literal["yes", "no"] = "no"
    problem: Literal["bowl", "noisy bowl", "network"] = "network"
    rate: Rate = 0.05
    steps: Count = 400

    axes = ("problem", "cleared")
    quick = {"steps": 200}
    seeds = {"quick": 3, "full": 20}
    metrics = {
        "growth": "log10 of the largest loss of the last quarter over the first loss",
        "last": "log10 of the last loss",
        "accumulated": "norm of the gradient used over the fresh one's, median",
    }

    def run(self, seed, lab):
        generator = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        model: nn.Module
        if self.problem == "network":
            layers = nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
            model = nn.Sequential(*layers).double()
            x = torch.randn(64, 10, generator=generator, dtype=torch.float64)
            target = torch.sin(x @ torch.randn(10, 1, generator=generator, dtype=torch.float64))

            def loss():
                return (model(x) - target).square().mean()
        else:
            model = nn.ParameterList([torch.randn(10, generator=generator, dtype=torch.float64)])
            curve = torch.linspace(0.2, 2.0, 10, dtype=torch.float64)
            noise = 0.0 if self.problem == "bowl" else 0.5

            def loss():
                push = noise * torch.randn(10, generator=generator, dtype=torch.float64)
                return 0.5 * (curve * model[0] ** 2).sum() + (push * (model[0] - model[0].detach())).sum()

        parameters = list(model.parameters())
        optimizer = torch.optim.SGD(parameters, lr=self.rate)
        losses, ratios = [], []
        for step in range(self.steps):
            if self.cleared == "yes":
                optimizer.zero_grad()
            value = loss()
            fresh = torch.autograd.grad(value, parameters, retain_graph=True)
            value.backward()
            used = torch.cat([p.grad.flatten() for p in parameters]).norm()
            ratios.append(float(used / torch.cat([g.flatten() for g in fresh]).norm().clamp_min(1e-300)))
            losses.append(min(value.item(), 1e300))
            lab.log(step, loss=losses[-1])
            if not math.isfinite(losses[-1]) or losses[-1] >= 1e300:
                break
            optimizer.step()
        late = max(losses[-max(1, self.steps // 4) :])
        return {
            "growth": math.log10(max(late, 1e-300) / max(losses[0], 1e-300)),
            "last": math.log10(max(losses[-1], 1e-300)),
            "accumulated": float(torch.tensor(ratios).median()),
        }

    @staticmethod
    def verdict(result):
        grown: dict[str, dict[str, float]] = {}
        for key, chosen in result.run.variants:
            summary = result.summary(key, "growth")
            if summary is not None:
                grown.setdefault(chosen["problem"], {})[chosen["cleared"]] = summary.mean

        said = [
            f"{problem} × {10 ** found['no']:.1g} without, × {10 ** found['yes']:.1g} with"
            for problem, found in grown.items()
            if len(found) == 2
        ]
        return "largest late loss over the first: " + "; ".join(said) if said else "no pair to compare"

    @staticmethod
    def figure(result):
        problems = list(dict.fromkeys(chosen["problem"] for _, chosen in result.run.variants))
        figure, axes = canvas(3.6 * len(problems) + 0.6, 3.2, ncols=len(problems), squeeze=False)
        for axis, problem in zip(axes[0], problems, strict=True):
            for trial in result.trials:
                if trial.settings["problem"] != problem or trial.status != "done":
                    continue
                steps, losses = zip(*result.store.curves(trial)["loss"], strict=True)
                cleared = trial.settings["cleared"] == "yes"
                axis.plot(steps, losses, color=COLOURS[0 if cleared else 1], alpha=0.6, linewidth=1)
            axis.set_yscale("log")
            axis.set_title(problem, loc="left", fontsize=10)
            axis.set_xlabel("step")
        axes[0, 0].set_ylabel("loss")
        for colour, words in ((COLOURS[0], "zero_grad()"), (COLOURS[1], "forgotten")):
            axes[0, -1].plot([], [], color=colour, label=words)
        axes[0, -1].legend(frameon=False)
        return figure
