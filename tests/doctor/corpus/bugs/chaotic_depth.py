"""Tanh layers, one after the other, with lively first weights."""

import torch
from torch import nn


class Deep(nn.Module):
    def __init__(self, depth=16, width=60):
        super().__init__()
        self.enter = nn.Linear(10, width)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.leave = nn.Linear(width, 1)
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=3 / width**0.5)

    def forward(self, x):
        h = self.enter(x).tanh()
        for layer in self.layers:
            h = layer(h).tanh()
        return self.leave(h)


model = Deep()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for _ in range(60):
    x = torch.randn(64, 10)
    y = x[:, :1] * x[:, 1:2]
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
