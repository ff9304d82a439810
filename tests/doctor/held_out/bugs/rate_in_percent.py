"""Rates in a config were meant as percent."""

from types import SimpleNamespace

import torch
from torch import nn

config = SimpleNamespace(rate=1e-4 / 100, momentum=0.0, steps=120)
net = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 3))
opt = torch.optim.SGD(net.parameters(), lr=config.rate, momentum=config.momentum)
means = 1.5 * torch.randn(3, 12)
for _ in range(config.steps):
    y = torch.randint(3, (32,))
    loss = nn.functional.cross_entropy(net(means[y] + torch.randn(32, 12)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
