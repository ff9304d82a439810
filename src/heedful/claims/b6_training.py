"""B6: depth, accumulated gradients, and gradients that are never cleared."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ..models import PlainNet, ResNet
from .claim import claim
from .documents import B
from .evidence import at_least, at_most, curve, note
from .studies import judged


def train_deep(kind, depth: int, seed: int, steps: int = 45) -> float:
    """The mean training loss of the last ten steps on scikit-learn's digits, narrow nets."""
    from .. import data

    torch.manual_seed(seed)
    sets = data.load("digits")
    x, y = sets.train.inputs.float() / 16, sets.train.labels
    model = kind(depth, channels=1, widths=(4, 8, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        batch = torch.randint(len(x), (64,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-10:]) / 10


@claim(
    "B6.1",
    B,
    "A plain net of 56 layers trains worse than one of 20; skips repair it.",
    stated="training error: plain 56 above plain 20; residual nets do not degrade",
)
def degradation(draw, *, train=train_deep):
    shallow, deep = train(PlainNet, 20, draw.seed), train(PlainNet, 56, draw.seed)
    repaired = train(ResNet, 56, draw.seed)
    yield note("judged", "a direct measurement: 45 steps on 8×8 digits, widths 4, 8, 16, batch norm")
    yield at_least("training loss, plain 56 less plain 20", deep - shallow, 0.0)
    yield at_most("training loss, residual 56 over plain 56", repaired / deep, 0.97)
    yield note("training loss, residual 56 less plain 20", repaired - shallow)
    yield curve(
        "training loss after 45 steps", "plain", [20, 56], [shallow, deep], across="layers", up="loss"
    )
    yield curve(
        "training loss after 45 steps", "residual", [56, 56], [repaired, repaired], across="layers", up="loss"
    )


@claim(
    "B6.2",
    B,
    "Accumulated gradients equal those of the large batch with LayerNorm, not with BatchNorm.",
    stated="(1, 32) … (32, 1)",
    once=True,
)
def accumulation(draw, *, results=None):
    found = judged("accumulation", draw.runs) if results is None else results
    pick = found.of()
    yield note("judged", found.about)
    pieces = [p for p in (1, 2, 4, 8, 16, 32) if pick(norm="layer", pieces=p)("residual") is not None]
    worst = {n: max(pick(norm=n, pieces=p)("residual") for p in pieces) for n in ("layer", "batch")}
    yield at_most("LayerNorm: largest relative error of the gradient", worst["layer"], 1e-10)
    least = min(pick(norm="batch", pieces=p)("residual") for p in pieces if p > 1)
    yield at_least("BatchNorm: smallest relative error of the gradient, in pieces", least, 0.05)
    for norm in ("batch", "layer"):
        yield curve(
            "angle to the whole batch's gradient",
            norm,
            pieces,
            [pick(norm=norm, pieces=p)("angle") for p in pieces],
            across="pieces of a batch of 32",
            up="degrees",
            log="x",
        )
        yield curve(
            "size against the whole batch's",
            norm,
            pieces,
            [pick(norm=norm, pieces=p)("size") for p in pieces],
            across="pieces of a batch of 32",
            up="ratio of norms",
            log="x",
        )


@claim(
    "B6.3",
    B,
    "A training loop without zero_grad diverges.",
    stated="the loss grows",
    corrected="With noise, as from small batches, the loss grows. Without noise it does not: on a smooth "
    "bowl it swings for ever and neither settles nor grows. With the line put back both fall.",
    once=True,
)
def never_cleared(draw, *, results=None):
    found = judged("zero-grad", draw.runs) if results is None else results
    pick = found.of()
    yield note("judged", found.about)
    growth = {
        (problem, cleared): pick(problem=problem, cleared=cleared)("growth")
        for problem in ("bowl", "noisy bowl", "network")
        for cleared in ("yes", "no")
    }
    yield at_least(
        "noisy bowl without zero_grad: log₁₀ of late over first loss", growth["noisy bowl", "no"], 0.3
    )
    yield at_least(
        "bowl without zero_grad: log₁₀ of late over first loss", growth["bowl", "no"], 0.3, role="detail"
    )
    swings = abs(growth["bowl", "no"])
    yield at_most("bowl without zero_grad: |log₁₀ of late over first loss|", swings, 0.25, role="corrected")
    for problem in ("bowl", "noisy bowl"):
        falls = growth[problem, "yes"]
        yield at_most(
            f"{problem} with zero_grad: log₁₀ of late over first loss", falls, -0.5, role="corrected"
        )
    for cleared, words in (("no", "without"), ("yes", "with")):
        yield note(
            f"network {words} zero_grad: log₁₀ of late over first loss", float(growth["network", cleared])
        )
    used = pick(problem="network", cleared="no")("accumulated")
    yield note("network: gradient used over the fresh one, median", float(used))
