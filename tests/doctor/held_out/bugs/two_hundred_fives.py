"""Counts that are right but for one hour of a broken meter."""

import torch
from torch import nn

hours = torch.randn(1200, 6)
load = hours @ torch.tensor([3.0, -1, 2, 0.5, 0, 1]) + 10 + 0.3 * torch.randn(1200)
load[700:704] = 65535.0
net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.01)
for start in range(0, 1200, 20):
    x, y = hours[start : start + 20], load[start : start + 20]
    loss = nn.functional.smooth_l1_loss(net(x)[:, 0], y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
