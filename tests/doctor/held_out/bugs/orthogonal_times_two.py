"""Fourteen leaky layers of orthogonal weights with too much gain."""

import torch
from torch import nn

blocks = []
for _ in range(14):
    linear = nn.Linear(32, 32)
    nn.init.orthogonal_(linear.weight, gain=2.5)
    blocks += [linear, nn.Hardtanh()]
net = nn.Sequential(nn.Linear(8, 32), *blocks, nn.Linear(32, 2))
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
for _ in range(60):
    x = torch.randn(40, 8)
    loss = nn.functional.cross_entropy(net(x), (x[:, 0] > 0).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
