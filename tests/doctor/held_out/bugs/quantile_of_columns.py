"""Pinball loss of one quantile."""

import torch
from torch import nn

Q = 0.8


def pinball(prediction, target):
    error = target - prediction
    return torch.maximum(Q * error, (Q - 1) * error).mean()


net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(90):
    x = torch.randn(40, 5)
    y = x[:, 0] + x[:, 1].abs() * torch.randn(40)
    loss = pinball(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
