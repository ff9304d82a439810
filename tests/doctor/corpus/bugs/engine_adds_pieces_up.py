"""A small training engine with mixed precision and accumulation."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    epochs: int = 2
    batch_size: int = 16
    grad_accum: int = 4
    lr: float = 0.05
    amp: bool = True


class Spirals(Dataset):
    def __init__(self, n=1024):
        self.y = torch.randint(3, (n,))
        r = torch.rand(n)
        a = r * 4 + self.y * 2.1
        self.x = torch.stack([r * a.cos(), r * a.sin()], 1) + 0.02 * torch.randn(n, 2)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"inputs": self.x[i], "labels": self.y[i]}


class Engine:
    def __init__(self, model, data, config):
        self.model, self.data, self.config = model, data, config
        self.optimizer = torch.optim.SGD(model.parameters(), lr=config.lr, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()

    def forward(self, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.config.amp):
            logits = self.model(batch["inputs"])
            return self.criterion(logits, batch["labels"])

    def run(self):
        self.model.train()
        for _ in range(self.config.epochs):
            for index, batch in enumerate(self.data):
                loss = self.forward(batch)
                loss.backward()
                if (index + 1) % self.config.grad_accum == 0:
                    self.optimizer.step()
                    self.optimizer.zero_grad(set_to_none=True)


config = Config()
model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
Engine(model, DataLoader(Spirals(), config.batch_size, shuffle=True), config).run()
