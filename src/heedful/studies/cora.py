"""GCN and GAT on citation graphs: a few labelled papers, the rest told by whom they cite."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch.nn import functional as F

from .. import data
from ..lab import Count, Figure, Trained, study
from ..models import GAT, GCN
from ..training import Experiment, Patience
from ._papers import Papers, course_net, course_optimizer

_GCN = "Kipf & Welling, ICLR 2017"
_GAT = "Veličković et al., ICLR 2018"
_HIDDEN = {"gcn": 16, "gat": 8}


def _figure(value, source, std=None):
    return {"test": Figure(value, std=std, runs=100, source=source)}


@study(
    "cora",
    "How well do GCN and GAT classify papers by their citations?",
    source="Kipf & Welling, ICLR 2017; Veličković et al., ICLR 2018; University of Toronto CSC413",
    cost={"quick": "15 s", "full": "15 min"},
)
@dataclass
class Cora(Trained):
    """The papers' settings and Planetoid's split. `cora-linqs` is the course's: 140 papers drawn at random,
    the rest tested, 100 epochs of its own nets; what that says of GCN and GAT, `cora-course` asks.
    """

    dataset: Literal["cora", "citeseer", "pubmed", "cora-linqs", "citations"] = "cora"
    model: Literal["gcn", "gat"] = "gcn"
    epochs: Count | None = None  # GCN 200; GAT until patience ends, 2,000 at most; the course's 100
    patience: Count = 100  # GAT: epochs without a better validation loss or accuracy
    hidden: Count | None = None

    axes = ("dataset", "model")
    quick = {"axes": {"dataset": ["citations"]}, "epochs": 60}
    full = {"axes": {"dataset": ["cora", "citeseer", "pubmed"]}}
    seeds = {"quick": 3, "full": 100}
    metrics = {"test": "accuracy on the test nodes, %", "val": "accuracy on the validation nodes, %"}
    published = {
        ("cora", "gcn"): _figure(81.5, _GCN),
        ("citeseer", "gcn"): _figure(70.3, _GCN),
        ("pubmed", "gcn"): _figure(79.0, _GCN),
        ("cora", "gat"): _figure(83.0, _GAT, 0.7),
        ("citeseer", "gat"): _figure(72.5, _GAT, 0.7),
        ("pubmed", "gat"): _figure(79.0, _GAT, 0.3),
    }

    @property
    def alike(self) -> bool:
        return self.dataset != "cora-linqs"  # whose seeds draw papers of their own

    def experiment(self, device, seed):
        sets = _papers(self.dataset, 0 if self.alike else seed, str(device))
        stop = None
        if self.model == "gat" and self.dataset != "cora-linqs":
            stop = Patience(self.patience, val_loss="min", val="max", ties=True)
        epochs = self.epochs or (2000 if stop else 100 if self.dataset == "cora-linqs" else 200)

        def loss(model, _):
            logits = model(sets.x, sets.graph)[sets.train]
            return F.cross_entropy(logits, sets.labels[sets.train])

        def evaluate(model):
            logits = model(sets.x, sets.graph)
            right = (logits.argmax(-1) == sets.labels).float()
            found = {"test": 100 * right[sets.test].mean()}
            if len(sets.val):
                found["val"] = 100 * right[sets.val].mean()
                found["val_loss"] = F.cross_entropy(logits[sets.val], sets.labels[sets.val])
            return found

        return Experiment(
            model=lambda: self._model(sets).to(device),
            loss=loss,
            batches=[None],
            optimizer=self._optimizer,
            epochs=epochs,
            evaluate=evaluate,
            every=None if stop else epochs,
            stop=stop,
            samples=lambda _: len(sets.train),
        )

    def found(self, outcome):
        history = outcome.history
        row = history.best.row if history.best else history.last
        return {"test": row["test"], "val": row.get("val", float("nan")), "epochs": len(history.steps)}

    def keep(self, outcome, lab):
        """The first seed's model: a hundred would fill a disk, to be looked at by no one."""
        if outcome.seed:
            return
        sets = _papers(self.dataset, 0, str(lab.device))
        with torch.random.fork_rng(devices=[]):  # other seeds may be in the middle of their training
            model = self._model(sets)
        best = outcome.history.best
        model.load_state_dict(best.weights if best else outcome.weights)
        lab.keep(model, use="nodes", dataset=self.dataset, classes=list(sets.classes))

    def _model(self, sets):
        sizes = sets.features, self.hidden or _HIDDEN[self.model], len(sets.classes)
        if self.dataset == "cora-linqs":
            return course_net(self.model, sets.features, self.hidden, len(sets.classes))
        if self.model == "gcn":
            return GCN(*sizes)
        return GAT(*sizes, heads=8, output_heads=8 if self.dataset == "pubmed" else 1)

    def _optimizer(self, model):
        """Adam as the papers have it: a GCN's weight decay is on its first layer alone."""
        if self.dataset == "cora-linqs":
            return course_optimizer(model)
        if self.model == "gcn":
            first = list(model.layers[0].parameters())
            rest = [p for p in model.parameters() if all(p is not other for other in first)]
            groups = [{"params": first, "weight_decay": 5e-4}, {"params": rest, "weight_decay": 0.0}]
            return torch.optim.Adam(groups, lr=0.01)
        rate, decay = (0.01, 1e-3) if self.dataset == "pubmed" else (0.005, 5e-4)
        return torch.optim.Adam(model.parameters(), lr=rate, weight_decay=decay)


@cache
def _papers(name: str, seed: int, device: str) -> Papers:
    options = {"train": 140, "seed": seed} if name == "cora-linqs" else {}
    return Papers(data.load(name, **options), device)
