"""Tabular data, small pieces, batch norms."""

import torch
from torch import nn

model = nn.Sequential(
    nn.Linear(12, 40),
    nn.BatchNorm1d(40),
    nn.ReLU(),
    nn.Linear(40, 40),
    nn.BatchNorm1d(40),
    nn.ReLU(),
    nn.Linear(40, 1),
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
x = torch.randn(480, 12)
y = (x[:, :1] * x[:, 1:2] + x[:, 2:3]).tanh()
pieces = 8
for epoch in range(4):
    for i, index in enumerate(torch.randperm(480).split(3)):
        loss = nn.functional.mse_loss(model(x[index]), y[index]) / pieces
        loss.backward()
        if (i + 1) % pieces == 0:
            optimizer.step()
            optimizer.zero_grad()
