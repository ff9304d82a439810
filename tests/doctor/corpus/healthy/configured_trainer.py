"""A trainer with a config, gradient clipping, warm-up and checkpoints in memory."""

import copy
from dataclasses import asdict, dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Config:
    width: int = 64
    depth: int = 3
    dropout: float = 0.1
    lr: float = 2e-3
    clip: float = 1.0
    epochs: int = 6
    batch: int = 32


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.first = nn.Linear(10, c.width)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(c.width), nn.Linear(c.width, c.width), nn.GELU(), nn.Dropout(c.dropout)
            )
            for _ in range(c.depth)
        )
        self.last = nn.Linear(c.width, 3)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


class Trainer:
    def __init__(self, config, train, valid):
        self.c, self.train, self.valid = config, train, valid
        self.model = MLP(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: min(1.0, (s + 1) / 20))
        self.best, self.kept = 0.0, None

    def fit(self):
        for _ in range(self.c.epochs):
            self.model.train()
            for i in torch.randperm(len(self.train[0])).split(self.c.batch):
                loss = nn.functional.cross_entropy(self.model(self.train[0][i]), self.train[1][i])
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), self.c.clip)
                self.optimizer.step()
                self.schedule.step()
            score = self.score()
            if score > self.best:
                self.best, self.kept = score, copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(self.kept)

    @torch.no_grad()
    def score(self):
        self.model.eval()
        return (self.model(self.valid[0]).argmax(1) == self.valid[1]).float().mean().item()


def make(n, w):
    x = torch.randn(n, 10)
    return x, (x @ w + 0.5 * (x**2) @ w.flip(0)).argmax(1)


w = torch.randn(10, 3)
config = Config()
trainer = Trainer(config, make(800, w), make(200, w))
trainer.fit()
print(asdict(config), trainer.best)
