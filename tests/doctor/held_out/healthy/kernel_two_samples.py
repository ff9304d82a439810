"""A generator trained by the kernel distance between samples, all pairs."""

import torch
from torch import nn

G = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
opt = torch.optim.Adam(G.parameters(), lr=2e-3)


def k(a, b):
    d = torch.cdist(a, b) ** 2
    return sum((-d / (2 * s)).exp() for s in (0.2, 1.0, 4.0)).mean()


for _ in range(80):
    real = torch.randn(64, 2) * torch.tensor([1.0, 0.2]) + torch.tensor([0.5, -1])
    fake = G(torch.randn(64, 4))
    loss = k(fake, fake) - 2 * k(fake, real) + k(real, real)
    opt.zero_grad()
    loss.backward()
    opt.step()
