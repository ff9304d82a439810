"""Cosine by batch, with the scheduler told first."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(512, 6)
loader = DataLoader(TensorDataset(x, (x[:, 0] > x[:, 1] ** 2).long()), 32, shuffle=True)
net = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 2))
optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5 * len(loader))
for _ in range(5):
    for a, b in loader:
        optimizer.zero_grad()
        nn.CrossEntropyLoss()(net(a), b).backward()
        scheduler.step()
        optimizer.step()
