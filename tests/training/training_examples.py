"""Experiments for the tests of many seeds: at the top of a module, so that workers find them."""

import math
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from heedful import Additive, Graph, attend
from heedful.training import Batches, Experiment

_generator = torch.Generator().manual_seed(5)
X = torch.randn(48, 6, generator=_generator, dtype=torch.float64)
Y = torch.randint(3, (48,), generator=_generator)
EDGES = torch.randint(48, (2, 200), generator=_generator)


class Net(nn.Module):
    """A hidden layer with what is hard for stacks: batch norm, dropout, a shared weight, a table in a
    buffer.
    """

    def __init__(self, norm: bool = True, drop: float = 0.3):
        super().__init__()
        self.first = nn.Linear(6, 6, bias=False)
        self.again = self.first
        self.norm = nn.BatchNorm1d(6) if norm else nn.Identity()
        self.drop = nn.Dropout(drop)
        self.last = nn.Linear(6, 3)
        self.register_buffer("table", torch.linspace(0, 1, 6), persistent=False)

    def forward(self, x):
        x = self.drop(torch.relu(self.norm(self.first(x))))
        return self.last(self.again(x) + self.table)


class Listening(nn.Module):
    """A graph layer whose attention is dropped, and propagation."""

    def __init__(self):
        super().__init__()
        self.value = nn.Linear(6, 16, bias=False)
        self.listener, self.speaker = (nn.Parameter(torch.randn(2, 8, 1)) for _ in range(2))
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        graph = Graph.from_edges(*EDGES, nodes=48)
        z = self.value(x).unflatten(-1, (2, 8)).transpose(0, 1)
        out = attend(
            z @ self.listener,
            z @ self.speaker,
            z,
            similarity=Additive(0.2),
            neighbors=graph,
            dropout=0.4 if self.training else 0.0,
        )
        return self.last(graph.propagate(F.elu(out.transpose(0, 1).flatten(1))))


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, 4, 3, padding=1),
            nn.ReLU(),
            nn.Dropout1d(0.2),
            nn.Conv1d(4, 4, 3, stride=2),
            nn.Flatten(),
        )
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.layers(x.unsqueeze(1)))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.LSTM(6, 5, 2, dropout=0.3), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.layer(x)[0])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.TransformerEncoderLayer(6, 2, 12, dropout=0.2), nn.Linear(6, 3)

    def forward(self, x):
        return self.last(self.layer(x))


MODELS = {kind.__name__: kind for kind in (Net, Listening, Convolution, Recurrent, Transformer)}
OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    "Adam": {"lr": 0.01},
    "AdamW": {"lr": 0.01, "amsgrad": True},
    "Adadelta": {"lr": 1.0, "weight_decay": 5e-5},
    "Adagrad": {"lr": 0.05, "initial_accumulator_value": 0.1},
    "RMSprop": {"lr": 0.01},
    "NAdam": {"lr": 0.01},
    "RAdam": {"lr": 0.01},
    "Adamax": {"lr": 0.01},
    "ASGD": {"lr": 0.1},
}


def build(kind="Net", dtype=torch.float64):
    return MODELS[kind]().to(dtype)


def optimizer(model, kind="Adam"):
    """Decay on matrices only, as groups."""
    options = dict(OPTIMIZERS[kind])
    decay = options.pop("weight_decay", 0.0)
    wide = [p for p in model.parameters() if p.dim() > 1]
    narrow = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": wide, "weight_decay": decay}, {"params": narrow, "weight_decay": 0.0}]
    return getattr(torch.optim, kind)(groups, **options)


def loss(model, batch):
    x, y = batch
    out = model(x.to(next(model.parameters()).dtype))
    return F.cross_entropy(out, y), {"accuracy": (out.argmax(-1) == y).double().mean()}


def evaluate(model):
    value, found = loss(model, (X, Y))
    return {"val_loss": value, "val_accuracy": found["accuracy"]}


def shuffled(seed):
    return Batches(X, Y, size=20, seed=seed, drop_last=True)


def whole():
    return [(X, Y)]


def cosine(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30)


def failing(model, batch, seed):
    if torch.initial_seed() == seed:
        raise ArithmeticError("seeds like this one are unlucky")
    return loss(model, batch)


def dying(model, batch):
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)


def diverging(model, batch):
    return loss(model, batch)[0] * math.nan


def experiment(kind="Net", dtype=torch.float64, with_optimizer="Adam", **options) -> Experiment:
    chosen = {
        "model": partial(build, kind, dtype),
        "loss": loss,
        "batches": shuffled if kind in ("Net", "Convolution") else whole(),
        "optimizer": partial(optimizer, kind=with_optimizer),
        "epochs": 6,
        "evaluate": evaluate,
        "test": evaluate,
    }
    return Experiment(**{**chosen, **options})
