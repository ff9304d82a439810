"""Batches from a generator that forgets to move on."""

import torch
from torch import nn


def stream(x, y, size):
    start = 0
    while True:
        yield x[start : start + size], y[start : start + size]
        if start + size >= len(x):
            start += size


mu = torch.randn(3, 16)
labels = torch.randint(3, (600,))
features = mu[labels] + torch.randn(600, 16)
network = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
batches = stream(features, labels, 32)
for step in range(100):
    inputs, targets = next(batches)
    loss = nn.functional.cross_entropy(network(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
