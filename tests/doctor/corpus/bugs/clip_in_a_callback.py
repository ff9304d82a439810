"""Hooks before and after the step."""

import torch
from torch import nn


class Hook:
    def before(self, engine): ...
    def after(self, engine): ...


class Clip(Hook):
    def __init__(self, norm):
        self.norm = norm

    def after(self, engine):
        torch.nn.utils.clip_grad_norm_(engine.model.parameters(), self.norm)


class Engine:
    def __init__(self, model, hooks):
        self.model, self.hooks = model, hooks
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def run(self, batches):
        for x, y in batches:
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x), y).backward()
            for hook in self.hooks:
                hook.before(self)
            self.optimizer.step()
            for hook in self.hooks:
                hook.after(self)


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(2, 20, batch_first=True), nn.Linear(20, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


def adding():
    for _ in range(60):
        value, mark = torch.rand(32, 12), torch.zeros(32, 12)
        mark.scatter_(1, torch.rand(32, 12).topk(2).indices, 1.0)
        yield torch.stack([value, mark], -1), (value * mark).sum(1, keepdim=True)


Engine(Last(), [Clip(1.0)]).run(adding())
