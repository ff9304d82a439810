"""Layers are thawed from the top, one every thirty steps."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 4))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
means = 1.2 * torch.randn(4, 10)
for p in model[:4].parameters():
    p.requires_grad_(False)
for step in range(120):
    if step == 30:
        model[2].requires_grad_(True)
    if step == 60:
        model[0].requires_grad_(True)
    y = torch.randint(4, (32,))
    loss = nn.functional.cross_entropy(model(means[y] + torch.randn(32, 10)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
