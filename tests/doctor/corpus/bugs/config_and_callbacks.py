"""Trainer with a config and callbacks."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    width: int = 48
    lr: float = 3e-2
    batch_size: int = 32
    epochs: int = 6
    callbacks: list[Callable] = field(default_factory=list)


class Trainer:
    def __init__(self, config, model, data):
        self.config, self.model, self.data = config, model, data
        self.optim = torch.optim.SGD(model.parameters(), lr=config.lr)

    def compute_loss(self, batch):
        x, y = batch
        return F.cross_entropy(self.model(x), y)

    def training_step(self, batch):
        self.model.train()
        loss = self.compute_loss(batch)
        loss.backward()
        self.optim.step()
        return loss.item()

    def batches(self):
        order = torch.randperm(len(self.data[0]))
        for part in order.split(self.config.batch_size):
            yield self.data[0][part], self.data[1][part]

    def fit(self):
        for epoch in range(self.config.epochs):
            for batch in self.batches():
                value = self.training_step(batch)
                for callback in self.config.callbacks:
                    callback(epoch, value)


centers = 2 * torch.randn(4, 12)
y = torch.randint(4, (512,))
x = centers[y] + torch.randn(512, 12)
log = []
config = Config(callbacks=[lambda epoch, value: log.append((epoch, value))])
model = nn.Sequential(nn.Linear(12, config.width), nn.GELU(), nn.Linear(config.width, 4))
Trainer(config, model, (x, y)).fit()
print(log[-1])
