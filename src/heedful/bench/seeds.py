"""Ten seeds of a GCN, of a GAT and of a small network on a graph the size of Cora: a plain loop beside a
stack.

    a seed's epoch: zero_grad, forward with dropout, cross-entropy on 140 nodes, backward, a step of Adam

2,708 nodes, 10,556 edges, 1,433 words of which a node has 1.27 %. The loop is written by hand, one seed after
another; beside it the same through `train`, which also keeps a history, and all ten stacked. The models,
their data and their random numbers are the same, and so are the weights they end with, which is checked.
The GCN is also written in plain PyTorch, with the graph as a sparse matrix: with the words as they come, a
dense table, which is the loop people write, and with the words as a sparse matrix, too, whose nonzeros alone
are dropped and multiplied, which is the fastest that plain PyTorch was brought to (`embedding_bag` and
`index_add` are slower). The goal is about the loop over our own layers, which the lab runs otherwise: it says
what stacking brings.
"""

from __future__ import annotations

import warnings
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from .. import Graph
from ..models import GAT, GCN
from ..training import Experiment, train_seeds
from . import cora, interleaved

SEEDS, GOAL = 10, 3


class Words(nn.Module):
    """A hidden layer over the words alone: what is left when the graph is taken away."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(cora.WORDS, 16), nn.ReLU(), nn.Linear(16, cora.CLASSES))

    def forward(self, x, graph):
        return self.layers(x)


class Plain(nn.Module):
    """A GCN in plain PyTorch, over words in a dense table or a sparse matrix."""

    def __init__(self, graph: Graph):
        super().__init__()
        ours = GCN(cora.WORDS, 16, cora.CLASSES)
        self.weights = nn.ParameterList([layer.weight for layer in ours.layers])
        self.biases = nn.ParameterList([layer.bias for layer in ours.layers])
        self.adjacency = graph.with_self_loops().normalized().to_torch_sparse().to_sparse_csr()

    def forward(self, x, graph):
        if x.layout is torch.sparse_csr:
            values = F.dropout(x.values(), 0.5, self.training)
            x = torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape)
        else:
            x = F.dropout(x, 0.5, self.training)
        x = torch.relu(self.adjacency @ (x @ self.weights[0]) + self.biases[0])
        return self.adjacency @ (F.dropout(x, 0.5, self.training) @ self.weights[1]) + self.biases[1]


def run(*, quick: bool, device: str):
    torch.manual_seed(0)
    index, words, classes = cora._data(device)
    graph, sparse = Graph.from_edge_index(index, nodes=cora.NODES), Graph.from_dense(words)
    epochs = 5 if quick else 200  # as many as the study trains
    few = words[:140]
    cases = {
        "GCN": (partial(GCN, cora.WORDS, 16, cora.CLASSES), sparse, epochs),
        "GAT": (partial(GAT, cora.WORDS, 8, cora.CLASSES), sparse, max(2, epochs // 20)),
        "words alone": (Words, few, epochs),
    }
    rows, ratio, plain, people, apart = [], 0.0, 0.0, 0.0, 0.0
    for name, (build, x, count) in cases.items():
        experiment = _experiment(lambda build=build: build().to(device), x, graph, classes, count)
        calls = {
            "by hand": partial(_by_hand, experiment),
            "loop": partial(train_seeds, experiment, SEEDS, backend="loop", progress=False),
            "stacked": partial(train_seeds, experiment, SEEDS, backend="stacked", progress=False),
        }
        difference = _difference(calls["by hand"](), [o.weights for o in calls["stacked"]()])
        # What is judged is spread over minutes: some are bad ones for whatever goes through much memory.
        taken = interleaved(calls, rounds=7 if name == "GCN" and not quick else 3, warm=1)
        if name == "GCN":
            warnings.filterwarnings("ignore", "Sparse", UserWarning)  # torch's, of its own sparse matrices
            for what, table in (("sparse", words.to_sparse_csr()), ("dense", words)):
                few_epochs = max(1, count // 20)  # each takes as long as the next
                theirs = _experiment(lambda: Plain(graph).to(device), table, graph, classes, few_epochs)
                seconds = interleaved({"plain": partial(_by_hand, theirs)}, rounds=1, warm=1)["plain"]
                taken[f"plain PyTorch, {what} words"] = seconds * count / few_epochs
            ratio, plain, people = (
                taken[how] / taken["stacked"]
                for how in ("by hand", "plain PyTorch, sparse words", "plain PyTorch, dense words")
            )
            apart = max(difference, _logits_apart(build(), sparse, words, graph))
        rows += [
            {
                "model": name,
                "how": how,
                "ms an epoch of a seed": 1e3 * seconds / (SEEDS * count),
                "times stacked": seconds / taken["stacked"],
                "largest difference of a weight": difference if how == "stacked" else None,
            }
            for how, seconds in taken.items()
        ]
    verdict = (
        f"{SEEDS} seeds of the GCN stacked are {ratio:.1f}× a plain loop over the same layers (goal {GOAL}), "
        f"{plain:.1f}× a loop in plain PyTorch over sparse words, {people:.0f}× over dense ones; weights, "
        f"and logits of the plain one, differ by {apart:.1e} at most"
    )
    return rows, verdict, ratio >= GOAL


def _experiment(build, x, graph, classes, epochs: int) -> Experiment:
    known = torch.arange(cora.TRAINED, device=classes.device)

    def loss(model, _):
        return F.cross_entropy(model(x, graph)[known], classes[known])

    def optimizer(model):
        return torch.optim.Adam(model.parameters(), **cora.LEARNING["gcn"])

    return Experiment(model=build, loss=loss, batches=[None], optimizer=optimizer, epochs=epochs)


def _by_hand(experiment: Experiment) -> list[dict]:
    found = []
    for seed in range(SEEDS):
        torch.manual_seed(seed)
        model = experiment.model()
        optimizer = experiment.optimizer(model)
        for _ in range(experiment.epochs):
            optimizer.zero_grad()
            experiment.loss(model, None).backward()
            optimizer.step()
        found.append(model.state_dict())
    return found


def _logits_apart(ours: GCN, sparse: Graph, words: torch.Tensor, graph: Graph) -> float:
    """Between our layers and plain PyTorch with the same weights, its words dense and sparse."""
    plain = Plain(graph).eval()
    for mine, theirs in ((plain.weights, "weight"), (plain.biases, "bias")):
        for parameter, layer in zip(mine, ours.layers, strict=True):
            parameter.data = getattr(layer, theirs).data
    with torch.no_grad():
        found = ours.eval()(sparse, graph)
        return max(
            float((plain(table, graph) - found).abs().max()) for table in (words, words.to_sparse_csr())
        )


def _difference(one: list[dict], other: list[dict]) -> float:
    return max(float((a[name] - b[name]).abs().max()) for a, b in zip(one, other, strict=True) for name in a)
