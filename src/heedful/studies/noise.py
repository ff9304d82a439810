"""Neighbours who know nothing: how much of them a mean, a GCN and a GAT can bear."""

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
from ..models import GAT, GCN
from ..training import Experiment


@study(
    "noise",
    "Who copes best with neighbours that know nothing?",
    source="University of Amsterdam, Deep Learning 1, 2024, 3.4 and 3.6",
    cost={"quick": "20 s", "full": "5 min"},
)
@dataclass
class Noise(Trained):
    """To every paper so many neighbours are added whose words are drawn at random, and who are no papers.

    A mean gives each of them as much say as a real one. A GCN divides by the root of both degrees, and the
    added ones have a degree of one, so they get more. A GAT may learn to look away.
    """

    model: Literal["mean", "gcn", "gat"] = "gcn"
    added: Literal[0, 1, 2, 4, 8] = 0
    dataset: Literal["citations", "cora"] = "cora"
    epochs: Count = 200

    axes = ("model", "added")
    quick = {"dataset": "citations", "epochs": 40, "axes": {"added": [0, 2, 8]}}
    seeds = {"quick": 1, "full": 10}
    metrics = {
        "test": "accuracy on the test nodes, %",
        "heard": "weight given to real neighbours and oneself, %",
    }

    def experiment(self, device, seed):
        sets = _noisy(self.dataset, self.added, str(device))

        def model():
            sizes = sets["features"], sets["classes"]
            if self.model == "gat":
                return GAT(sizes[0], 8, sizes[1]).to(device)
            rule = "row" if self.model == "mean" else "symmetric"
            return GCN(sizes[0], 16, sizes[1], normalize=rule).to(device)

        def loss(model, _):
            logits = model(sets["x"], sets["graph"])
            return F.cross_entropy(logits[sets["train"]], sets["labels"][sets["train"]])

        def after(model):
            right = (
                model(sets["x"], sets["graph"])[: len(sets["labels"])].argmax(-1) == sets["labels"]
            ).float()
            return {"test": 100 * right[sets["test"]].mean(), "heard": 100 * _heard(model, sets)}

        rate = 0.005 if self.model == "gat" else 0.01
        return Experiment(
            model=model,
            loss=loss,
            batches=[None],
            optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=rate, weight_decay=5e-4),
            epochs=self.epochs,
            test=after,
            samples=lambda _: len(sets["train"]),
        )

    @staticmethod
    def verdict(result):
        said = []
        for model in ("mean", "gcn", "gat"):
            found = {
                chosen["added"]: summary.mean
                for key, chosen, _ in result.variants()
                if chosen["model"] == model and (summary := result.summary(key, "test")) is not None
            }
            if len(found) > 1:
                said.append(
                    f"{model} falls from {found[min(found)]:.0f} to {found[max(found)]:.0f} % "
                    f"with {max(found)} added"
                )
        return "; ".join(said)

    @staticmethod
    def figure(result):
        return lines(result, "added", ["test", "heard"], "model")


@torch.no_grad()
def _heard(model, sets) -> float:
    """The share of a paper's weights, in the first layer, that goes to papers (itself among them)."""
    papers = len(sets["labels"])
    if isinstance(model, GAT):
        graph = model.attention(sets["x"], sets["graph"])[0]
        assert graph.weight is not None
        weight = graph.weight.mean(0)
    else:
        rule = {"symmetric": "symmetric", "row": "row"}[model.layers[0].normalize]
        graph = sets["graph"].with_self_loops().normalized(rule)
        weight = graph.weight
    source, target = graph.source, graph.target
    listened = target < papers
    real = listened & (source < papers)
    return float(weight[real].sum() / weight[listened].sum())


@cache
def _noisy(name: str, added: int, device: str) -> dict:
    """The papers, and after them the neighbours that know nothing; each is heard by one paper."""
    found = data.load(name)
    papers = len(found.labels)
    source, target = found.graph.source, found.graph.target
    draw = torch.Generator().manual_seed(added)
    count = papers * added
    heard_by = torch.arange(papers).repeat_interleave(added)
    source = torch.cat([source, papers + torch.arange(count)])
    target = torch.cat([target, heard_by])
    share = (found.features > 0).float().mean()
    words = (torch.rand(count, found.features.shape[1], generator=draw) < share).float()
    features = torch.cat([(found.features > 0).float(), words])
    features = features / features.sum(1, keepdim=True).clamp(min=1)
    return {
        "graph": Graph.from_edges(source, target, nodes=papers + count).to(device),
        "x": Graph.from_dense(features).to(device),
        "labels": found.labels.to(device),
        "train": found.train.to(device),
        "test": found.test.to(device),
        "features": features.shape[1],
        "classes": len(found.classes),
    }
