"""Angles in degrees, predicted by a net that begins near zero."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(6, 48), nn.Tanh(), nn.Linear(48, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(80):
    x = torch.randn(32, 6)
    degrees = 270 + 8 * x[:, :1] - 5 * x[:, 1:2] * x[:, 2:3]
    loss = nn.functional.mse_loss(net(x), degrees)
    opt.zero_grad()
    loss.backward()
    opt.step()
