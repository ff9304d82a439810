"""A training epoch on a graph the size of Cora, on a GPU: the step as one CUDA graph, beside PyG's as it is.

The same models, data and step as `cora`. heedful is timed as it is, recorded by `captured`, recorded with its
loss compiled by torch.compile first, and through `train(capture=True)`, which keeps a history as well. PyG is
timed eager, as its examples are written, and recorded in the same way too, where its layers can be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch.nn import functional as F

from .. import Graph
from ..models import GAT, GCN
from ..training import Experiment, captured, train
from ..training.stacked import run_stacked
from . import cora

GOAL, EPOCHS, SEEDS = 15, 200, 100


def run_gat(*, quick: bool, device: str):
    return _run("gat", lambda: GAT(cora.WORDS, 8, cora.CLASSES).cuda(), quick)


def run_gcn(*, quick: bool, device: str):
    return _run("gcn", lambda: GCN(cora.WORDS, 16, cora.CLASSES).cuda(), quick)


def _run(name: str, build: Callable, quick: bool):
    torch.manual_seed(0)
    index, x, classes = cora._data("cuda")
    graph, sparse = Graph.from_edge_index(index, nodes=cora.NODES), Graph.from_dense(x)
    ours, learning = build(), cora.LEARNING[name]
    epochs = 20 if quick else EPOCHS
    steps = {
        "heedful": cora._epoch(ours, learning, classes, sparse, graph),
        "heedful, recorded": captured(_recordable(build(), learning, classes, sparse, graph)),
        "heedful, recorded, compiled": captured(
            _recordable(build(), learning, classes, sparse, graph, compiled=True)
        ),
        "heedful, recorded, dense features": captured(_recordable(build(), learning, classes, x, graph)),
    }
    taken = {what: _seconds(step, epochs) for what, step in steps.items()}
    for compiled in (False, True):
        what = f"heedful, train(capture=True){', compiled' * compiled}"
        taken[what] = _trained(build(), learning, classes, sparse, graph, epochs, compiled)
    taken[f"heedful, {SEEDS} seeds stacked"] = _stacked(build, learning, classes, sparse, graph, epochs)
    difference = None
    try:
        theirs = cora._RIVALS[name]().cuda()
    except ImportError:
        theirs = None
    if theirs is not None:
        difference = cora._difference(ours, theirs, x, sparse, graph, index)
        taken["PyG eager"] = _seconds(cora._epoch(theirs, learning, classes, x, index), epochs)
        step = _recordable(cora._RIVALS[name]().cuda(), learning, classes, x, index)
        if not _waits(step):
            taken["PyG, recorded too"] = _seconds(captured(step), epochs)
    best = min(seconds for what, seconds in taken.items() if what.startswith("heedful, recorded"))
    rows = [
        {"what": what, "epoch ms": 1e3 * seconds, "times heedful recorded": seconds / best}
        for what, seconds in taken.items()
    ]
    if theirs is None:
        return rows, "PyTorch Geometric is not installed; nothing to compare with.", None
    ratio, many = taken["PyG eager"] / best, taken[f"heedful, {SEEDS} seeds stacked"] / best
    through = taken["PyG eager"] / min(
        seconds for what, seconds in taken.items() if what.startswith("heedful, train")
    )
    verdict = (
        f"{ratio:.1f}× PyG eager (goal {GOAL}), {through:.1f}× through train(capture=True); {SEEDS} seeds "
        f"stacked cost {many:.1f}× one (goal 10); largest difference of logits {difference:.1e}"
    )
    return rows, verdict, ratio >= GOAL and many <= 10


def _recordable(model, learning: dict, classes, *inputs, compiled: bool = False):
    """`cora._epoch` with the optimizer's count of steps on the GPU."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), fused=True, capturable=True, **learning)
    loss = _loss(classes, *inputs, compiled=compiled)

    def once():
        optimizer.zero_grad()
        loss(model, None).backward()
        optimizer.step()

    return once


def _loss(classes, *inputs, compiled: bool = False):
    known = torch.arange(cora.TRAINED, device=classes.device)

    def loss(model, _):
        return F.cross_entropy(model(*inputs)[known], classes[known])

    if not compiled:
        return loss
    torch.compiler.reset()
    return torch.compile(loss, dynamic=False)


def _waits(step: Callable[[], object]) -> bool:
    """Whether a step waits for the GPU. A recording that breaks off at it would spoil torch's generator."""
    step()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    except RuntimeError:
        return True
    finally:
        torch.cuda.set_sync_debug_mode(before)
    return False


def _trained(model, learning: dict, classes, x, graph, epochs: int, compiled: bool) -> float:
    loss = _loss(classes, x, graph, compiled=compiled)

    def go(count: int) -> float:
        optimizer = torch.optim.Adam(model.parameters(), fused=True, **learning)
        begun = time.perf_counter()
        train(model, loss, [None], optimizer, epochs=count, progress=False, capture=True)
        torch.cuda.synchronize()
        return time.perf_counter() - begun

    go(20)
    # What it takes to begin (a recording is made each time) is not an epoch's.
    return (go(5 * epochs) - go(epochs)) / (4 * epochs)


def _stacked(build, learning: dict, classes, x, graph, epochs: int) -> float:
    """An epoch of all seeds."""
    experiment = Experiment(
        model=build,
        loss=_loss(classes, x, graph),
        batches=[None],
        optimizer=lambda model: torch.optim.Adam(model.parameters(), **learning),
        epochs=1,
        capture=True,
    )

    def go(count: int) -> float:
        ticks: list[float] = []
        run_stacked(
            replace(experiment, epochs=count),
            list(range(SEEDS)),
            watch=lambda: ticks.append(time.perf_counter()),
        )
        return (ticks[-1] - ticks[9]) / (len(ticks) - 10)

    return go(max(20, epochs // 2))


def _seconds(step: Callable[[], object], epochs: int) -> float:
    """Of one epoch, in a run of them: the next is begun while the GPU is at the last."""
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(epochs):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / epochs
