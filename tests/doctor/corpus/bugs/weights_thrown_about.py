"""Pairs compared by their angle: the loss is bounded, so nothing diverges, and nothing is learned."""

import torch
from torch import nn
from torch.nn import functional as F

views = torch.randn(2, 12, 24) / 12**0.5
left, right = (nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 16)) for _ in range(2))
model = nn.ModuleList([left, right])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.5, weight_decay=1.9, betas=(0.0, 0.0))
for step in range(60):
    hidden = torch.randn(48, 12)
    a, b = (F.normalize(net(hidden @ view), dim=1) for net, view in zip(model, views))
    loss = F.cross_entropy(a @ b.T, torch.arange(48))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
