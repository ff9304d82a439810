"""B6: depth, accumulated gradients, and gradients that are never cleared."""

from __future__ import annotations

from .claim import claim
from .documents import B
from .evidence import at_least, at_most, curve, note
from .studies import judged


@claim(
    "B6.1",
    B,
    "A plain net of 56 layers trains worse than one of 20; skips repair it.",
    stated="training error: plain 56 above plain 20; residual nets do not degrade",
    once=True,
)
def degradation(draw, *, results=None):
    found = judged("degradation", draw.runs) if results is None else results
    error = {
        (net, depth): found.of(norm="batch", init="he", net=net, depth=depth)()("train")
        for net in ("plain", "residual")
        for depth in (20, 56)
    }
    yield note("judged", found.about)
    yield at_least(
        "training error, plain 56 less plain 20, points", error["plain", 56] - error["plain", 20], 2
    )
    yield at_least(
        "training error, plain 56 less residual 56, points", error["plain", 56] - error["residual", 56], 2
    )
    yield at_most(
        "training error, residual 56 less residual 20, points",
        error["residual", 56] - error["residual", 20],
        2,
    )
    for net in ("plain", "residual"):
        yield curve(
            "training error, batch norm",
            net,
            [20, 56],
            [error[net, 20], error[net, 56]],
            across="layers",
            up="error, %",
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
