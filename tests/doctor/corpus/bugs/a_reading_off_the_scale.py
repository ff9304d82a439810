"""Sensor data; a few readings were stored in another unit and are ten thousand times as large."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(960, 6)
y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0, 1.5, -1.0]) + 0.1 * torch.randn(960)
order = torch.randperm(960)
y[order[700]] *= 1e4
model = nn.Linear(6, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for i, (a, b) in enumerate(DataLoader(TensorDataset(x[order], y[order]), batch_size=16)):
    error = nn.functional.huber_loss(model(a).squeeze(1), b, delta=5.0)
    optimizer.zero_grad()
    error.backward()
    optimizer.step()
