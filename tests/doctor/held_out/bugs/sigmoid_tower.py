"""Eleven sigmoid layers, as one did long ago."""

import itertools

import torch
from torch import nn

sizes = [14] + [40] * 10 + [4]
model = nn.Sequential()
for k, (a, b) in enumerate(itertools.pairwise(sizes)):
    model.add_module(f"layer{k}", nn.Linear(a, b))
    if k < len(sizes) - 2:
        model.add_module(f"squash{k}", nn.Sigmoid())
opt = torch.optim.SGD(model.parameters(), lr=0.5)
w = torch.randn(14, 4)
for _ in range(60):
    x = torch.randn(50, 14)
    loss = nn.functional.cross_entropy(model(x), (x @ w).argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
