"""Whole studies against the plain code people write for them.

`gat-seeds`: the cora study's GAT, a seed a core or one after another, an evaluation every epoch; beside it
PyG's layers put together and trained as PyG's example does, which evaluates every epoch, too. A hundred seeds
of either are a hundred times one seed, so a few epochs of a few seeds say what a hundred take.

`padding-study`: two seeds of the padding study, a process and a core each, as the lab runs them; beside it a
plain loop over a DataLoader, a seed after the other with all cores. On a GPU all of the study is run, as it
is from the command line.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from multiprocessing import get_context
from tempfile import TemporaryDirectory

import torch
from torch.nn import functional as F

from .. import Graph, data, lab
from ..models import GAT, ConvNet
from ..studies.padding import Padding
from ..training import Experiment
from ..training.workers import settle
from . import cora, interleaved

GOAL_GAT, GOAL_PADDING = 10, 1.5


def run_gat(*, quick: bool, device: str):
    seeds, epochs = (2, 5) if quick else (4, 20)

    def example():
        words, index = _papers()[0], _papers()[2]
        for seed in range(seeds):
            torch.manual_seed(seed)
            model = cora._pyg_gat()
            optimizer = _adam(model)
            for _ in range(epochs):
                model.train()
                optimizer.zero_grad()
                _gat_loss(model, words, index).backward()
                optimizer.step()
                model.eval()
                with torch.no_grad():
                    {name: float(value) for name, value in _gat_evaluation(model, words, index).items()}

    with _two_workers() as pool:

        def ours():
            list(pool.map(_gat_seed, range(seeds), [epochs] * seeds))

        calls = {
            "heedful, a seed a core": ours,
            "heedful, one after another": lambda: _gat_seeds(seeds, epochs),
        }
        try:
            cora._pyg_gat()
            calls["PyG's example"] = example
        except ImportError:
            pass
        taken = interleaved(calls, rounds=1 if quick else 3, warm=1)
    best = min(seconds for what, seconds in taken.items() if what.startswith("heedful"))
    rows = [
        {"what": what, "ms an epoch": 1e3 * seconds / (seeds * epochs), "times heedful": seconds / best}
        for what, seconds in taken.items()
    ]
    if "PyG's example" not in taken:
        return rows, "PyTorch Geometric is not installed; nothing to compare with.", None
    ratio = taken["PyG's example"] / best
    verdict = (
        f"{ratio:.1f}× PyG's example, seed after seed (goal {GOAL_GAT}), "
        f"measured on {seeds} seeds of {epochs} epochs"
    )
    return rows, verdict, ratio >= GOAL_GAT


@cache
def _papers():
    torch.manual_seed(0)
    index, words, classes = cora._data("cpu")
    return words, classes, index, Graph.from_edge_index(index, nodes=cora.NODES), Graph.from_dense(words)


def _adam(model):
    return torch.optim.Adam(model.parameters(), **cora.LEARNING["gat"])


def _gat_loss(model, *inputs):
    return F.cross_entropy(model(*inputs)[: cora.TRAINED], _papers()[1][: cora.TRAINED])


def _gat_evaluation(model, *inputs):
    logits, classes = model(*inputs)[500:1000], _papers()[1][500:1000]
    return {
        "val_loss": F.cross_entropy(logits, classes),
        "val": (logits.argmax(-1) == classes).float().mean(),
    }


def _gat_seed(seed: int, epochs: int) -> None:
    _, _, _, graph, sparse = _papers()
    Experiment(
        model=lambda: GAT(cora.WORDS, 8, cora.CLASSES),
        loss=lambda model, _: _gat_loss(model, sparse, graph),
        batches=[None],
        optimizer=_adam,
        epochs=epochs,
        evaluate=lambda model: _gat_evaluation(model, sparse, graph),
        samples=lambda _: cora.TRAINED,
    ).run(seed)


def _gat_seeds(seeds: int, epochs: int) -> None:
    for seed in range(seeds):
        _gat_seed(seed, epochs)


def _two_workers() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(2, get_context("spawn"), settle, (1,))


def run_padding(*, quick: bool, device: str):
    epochs = 1 if quick else 2
    rows, worst = [], float("inf")
    with _two_workers() as pool:
        for padding in ("valid",) if quick else ("valid", "full"):

            def ours(padding=padding):
                list(pool.map(_seed, [padding] * 2, [epochs] * 2, range(2)))

            def plain(padding=padding):
                for seed in range(2):
                    _plain(padding, epochs, seed)

            taken = interleaved({"heedful": ours, "plain loop": plain}, rounds=1 if quick else 3, warm=1)
            ratio = taken["plain loop"] / taken["heedful"]
            worst = min(worst, ratio)
            rows += [
                {
                    "padding": padding,
                    "what": what,
                    "s an epoch of a seed": seconds / (2 * epochs),
                    "times heedful": seconds / taken["heedful"],
                }
                for what, seconds in taken.items()
            ]
    return rows, f"{worst:.1f}× a plain loop at the least (goal {GOAL_PADDING})", worst >= GOAL_PADDING


def run_padding_whole(*, quick: bool, device: str):
    """As `heedful run padding --device cuda` does it, every core with a process of its own on the one GPU."""
    seeds, settings = (1, {"padding": "valid"}) if quick else (10, {})
    workers = max(1, (os.cpu_count() or 1) - 2)
    with TemporaryDirectory() as folder:
        begun = time.perf_counter()
        result = lab.run(
            "padding", seeds=seeds, settings=settings, store=folder, backend="processes", workers=workers,
            device=device,
        )  # fmt: skip
        taken = time.perf_counter() - begun
        trials = result.records()
    rows = [{"trials": len(trials), "workers": workers, "s": taken, "s a trial": taken / len(trials)}]
    return rows, f"{len(trials)} nets trained in {taken:.0f} s (goal 120)", None if quick else taken <= 120


def _seed(padding: str, epochs: int, seed: int) -> None:
    experiment = Padding(padding=padding, epochs=epochs).experiment(torch.device("cpu"), seed)  # type: ignore[arg-type]
    replace(experiment, test=None).run(seed)


def _plain(padding: str, epochs: int, seed: int) -> None:
    from torch.utils.data import DataLoader, TensorDataset

    sets = data.boxes(train=2000, val=1000, test=1000)
    assert sets.val is not None
    train, val = (
        DataLoader(TensorDataset(part.inputs.float() / 255, part.labels), batch_size=200)
        for part in (sets.train, sets.val)
    )
    torch.manual_seed(seed)
    model = ConvNet.net1(padding)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0, rho=0.9, eps=1e-6, weight_decay=5e-5)
    for _ in range(epochs):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for x, y in val:
                F.cross_entropy(model(x), y).item()
