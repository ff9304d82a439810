"""Layer upon layer of averaging: neighbours become the same, later if one also listens to oneself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch.nn import functional as F

from .. import data
from ..graphs import Graph
from ..lab import Count, Trained, study
from ..lab.figures import lines
from ..models import GCN
from ..probes import dirichlet_energy
from ..training import Experiment


@study(
    "oversmoothing",
    "How deep can a graph net be before all nodes look alike?",
    source="University of Amsterdam, Deep Learning 1, 2024, 3.3; Li, Han & Wu, AAAI 2018",
    cost={"quick": "15 s", "full": "5 min"},
)
@dataclass
class Oversmoothing(Trained):
    """GCNs of growing depth, with the self term (a skip around every layer in between) and without it.

    Energy is how much neighbours still differ in the last hidden layer, as a share of all there is to differ:
    ½ Σ ‖x_i/√d_i − x_j/√d_j‖² over ‖x‖². Where it is near zero, a classifier has nothing to go by.
    `untrained` is that of random weights: depth alone.
    """

    layers: Literal[2, 4, 8, 16, 32] = 2
    itself: Literal["with", "without"] = "without"
    dataset: Literal["citations", "cora"] = "cora"
    epochs: Count = 100
    hidden: Count = 16

    axes = ("itself", "layers")
    quick = {"dataset": "citations", "epochs": 25, "axes": {"layers": [2, 8, 32]}}
    seeds = {"quick": 1, "full": 5}
    metrics = {
        "energy": "energy of the last hidden layer once trained, log₁₀",
        "untrained": "energy of the last hidden layer with random weights, log₁₀",
        "test": "accuracy on the test nodes, %",
    }

    def experiment(self, device, seed):
        papers = _papers(self.dataset, str(device))

        def model():
            return GCN(
                papers["features"], self.hidden, papers["classes"], layers=self.layers,
                residual=self.itself == "with",
            ).to(device)  # fmt: skip

        def loss(model, _):
            logits = model(papers["x"], papers["graph"])
            return F.cross_entropy(logits[papers["train"]], papers["labels"][papers["train"]])

        def after(model):
            right = (model(papers["x"], papers["graph"]).argmax(-1) == papers["labels"]).float()
            return {
                "test": 100 * right[papers["test"]].mean(),
                "energy": _energy(model, papers),
                "untrained": _energy(model, papers, anew=seed),
            }

        return Experiment(
            model=model,
            loss=loss,
            batches=[None],
            optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4),
            epochs=self.epochs,
            test=after,
            samples=lambda _: len(papers["train"]),
        )

    @staticmethod
    def verdict(result):
        """What depth leaves of the energy: of random weights, then of those it has learned."""
        layers = [chosen["layers"] for _, chosen in result.run.variants]
        said = []
        for when, metric in (("of random weights", "untrained"), ("once trained", "energy")):
            found = {
                (chosen["itself"], chosen["layers"]): summary.mean
                for key, chosen in result.run.variants
                if (summary := result.summary(key, metric)) is not None
            }
            kept = [
                f"{10 ** (found[itself, max(layers)] - found[itself, min(layers)]):.2g} {itself}"
                for itself in ("without", "with")
                if {(itself, min(layers)), (itself, max(layers))} <= set(found)
            ]
            if kept:
                said.append(f"{when} {', '.join(kept)} the self term")
        if not said or min(layers) == max(layers):
            return ""
        return f"energy at {max(layers)} layers over that at {min(layers)}: {'; '.join(said)}"

    @staticmethod
    def figure(result):
        return lines(result, "layers", ["untrained", "energy", "test"], "itself", log=True)


def _energy(model: GCN, papers: dict, anew: int | None = None) -> float:
    """log₁₀ of E(x)/‖x‖² of what the last layer is given."""
    if anew is not None:
        torch.manual_seed(anew)
        fresh = GCN(**model.config).to(papers["labels"].device)
        model = fresh.eval()
    seen: list[torch.Tensor] = []
    handle = model.layers[-1].register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        model(papers["x"], papers["graph"])
    handle.remove()
    x = seen[0].double()
    share = dirichlet_energy(papers["graph"], x) / x.square().sum().clamp(min=1e-300)
    return float(share.clamp(min=1e-16).log10())


@cache
def _papers(name: str, device: str) -> dict:
    found = data.load(name).row_normalized()
    return {
        "graph": found.graph.to(device),
        "x": Graph.from_dense(found.features).to(device),
        "labels": found.labels.to(device),
        "train": found.train.to(device),
        "test": found.test.to(device),
        "features": found.features.shape[1],
        "classes": len(found.classes),
    }
