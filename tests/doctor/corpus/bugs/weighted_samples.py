"""Every sample has a weight of its own."""

import torch
from torch import nn


def weighted(prediction, target, weight):
    each = nn.functional.smooth_l1_loss(prediction, target, reduction="none")
    return (each * weight).sum() / weight.sum()


x = torch.randn(640, 4)
y = (x[:, :2] * x[:, 2:]).sum(1, keepdim=True)
importance = torch.rand(640) + 0.5
net = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(5):
    for i in torch.randperm(640).split(32):
        loss = weighted(net(x[i]), y[i], importance[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
