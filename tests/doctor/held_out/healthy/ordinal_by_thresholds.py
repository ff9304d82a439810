"""Ordered classes by thresholds: one score against four cuts, all pairs meant."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
cuts = nn.Parameter(torch.linspace(-2, 2, 4))
opt = torch.optim.Adam([*net.parameters(), cuts], lr=5e-3)
for _ in range(100):
    x = torch.randn(32, 6)
    level = torch.bucketize(x[:, 0] * 2 + x[:, 1], torch.tensor([-2.0, -0.7, 0.7, 2.0]))
    above = (level[:, None] > torch.arange(4)).float()
    loss = nn.functional.binary_cross_entropy_with_logits(net(x) - cuts, above)
    opt.zero_grad()
    loss.backward()
    opt.step()
