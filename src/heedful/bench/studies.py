"""Whole studies against the plain code people write for them.

`gat-seeds`: the cora study's GAT, seed after seed, an evaluation every epoch; beside it PyG's layers put
together and trained as PyG's example does, which evaluates every epoch, too. A hundred seeds of either are a
hundred times one seed, so a few epochs of a few seeds say what a hundred take.

`padding-study`: two seeds of the padding study, a process and a core each, as the lab runs them; beside it a
plain loop over a DataLoader, a seed after the other with all cores.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

import torch
from torch.nn import functional as F

from .. import Graph, data
from ..models import ConvNet
from ..studies.padding import Padding
from . import cora, interleaved

GOAL_GAT, GOAL_PADDING = 10, 1.5


def run_gat(*, quick: bool, device: str):
    from ..models import GAT
    from ..training import Experiment

    seeds, epochs = (1, 5) if quick else (3, 20)
    torch.manual_seed(0)
    index, words, classes = cora._data(device)
    graph, sparse = Graph.from_edge_index(index, nodes=cora.NODES), Graph.from_dense(words)
    known, asked = torch.arange(cora.TRAINED), torch.arange(500, 1000)

    def adam(model):
        return torch.optim.Adam(model.parameters(), **cora.LEARNING["gat"])

    def evaluate(model, *inputs):
        logits = model(*inputs)
        right = (logits.argmax(-1) == classes).float()
        return {"val_loss": F.cross_entropy(logits[asked], classes[asked]), "val": right[asked].mean()}

    experiment = Experiment(
        model=lambda: GAT(cora.WORDS, 8, cora.CLASSES),
        loss=lambda model, _: F.cross_entropy(model(sparse, graph)[known], classes[known]),
        batches=[None],
        optimizer=adam,
        epochs=epochs,
        evaluate=lambda model: evaluate(model, sparse, graph),
        samples=lambda _: len(known),
    )

    def ours():
        for seed in range(seeds):
            experiment.run(seed)

    def example():
        for seed in range(seeds):
            torch.manual_seed(seed)
            model = cora._pyg_gat()
            optimizer = adam(model)
            for _ in range(epochs):
                model.train()
                optimizer.zero_grad()
                F.cross_entropy(model(words, index)[known], classes[known]).backward()
                optimizer.step()
                model.eval()
                with torch.no_grad():
                    {name: float(value) for name, value in evaluate(model, words, index).items()}

    calls = {"heedful": ours}
    try:
        cora._pyg_gat()
        calls["PyG's example"] = example
    except ImportError:
        pass
    taken = interleaved(calls, rounds=1 if quick else 3, warm=1)
    rows = [
        {
            "what": what,
            "ms an epoch": 1e3 * seconds / (seeds * epochs),
            "times heedful": seconds / taken["heedful"],
        }
        for what, seconds in taken.items()
    ]
    if len(calls) == 1:
        return rows, "PyTorch Geometric is not installed; nothing to compare with.", None
    ratio = taken["PyG's example"] / taken["heedful"]
    verdict = (
        f"{ratio:.1f}× PyG's example, seed after seed (goal {GOAL_GAT}), "
        f"measured on {seeds} seeds of {epochs} epochs"
    )
    return rows, verdict, ratio >= GOAL_GAT


def run_padding(*, quick: bool, device: str):
    epochs = 1 if quick else 2
    rows, worst = [], float("inf")
    with ProcessPoolExecutor(2, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
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
