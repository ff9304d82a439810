"""Weights are shaken before the gradient is taken, and put back before the step."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(9, 40), nn.ReLU(), nn.Linear(40, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
w = torch.randn(9, 3)
for _ in range(90):
    x = torch.randn(32, 9)
    noise = [0.02 * torch.randn_like(p) for p in net.parameters()]
    with torch.no_grad():
        for p, n in zip(net.parameters(), noise):
            p.add_(n)
    opt.zero_grad()
    nn.functional.cross_entropy(net(x), (x @ w).argmax(1)).backward()
    with torch.no_grad():
        for p, n in zip(net.parameters(), noise):
            p.sub_(n)
    opt.step()
