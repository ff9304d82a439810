"""A normalising flow of affine couplings on two moons."""

import math

import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, x):
        a, b = x.flip(1).chunk(2, 1) if self.flip else x.chunk(2, 1)
        s, t = self.net(a).chunk(2, 1)
        s = s.tanh()
        b = b * s.exp() + t
        return torch.cat([a, b], 1), s.sum(1)


class Flow(nn.Module):
    def __init__(self, layers=6):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(layers))

    def log_prob(self, x):
        total = 0.0
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return -0.5 * (x**2).sum(1) - math.log(2 * math.pi) + total


def moons(n):
    angle, side = torch.rand(n) * math.pi, torch.randint(2, (n,)).float()
    x = torch.stack([angle.cos() * (1 - 2 * side) + side - 0.5, angle.sin() * (1 - 2 * side) + 0.3 * side], 1)
    return x + 0.05 * torch.randn(n, 2)


flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
for _ in range(120):
    loss = -flow.log_prob(moons(128)).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    optimizer.step()
