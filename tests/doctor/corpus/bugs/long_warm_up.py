"""Warm-up as on a large machine, data of a small one."""

import torch
from torch import nn
from transformers import get_linear_schedule_with_warmup

x = torch.randn(800, 10)
y = (x[:, 0] * x[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=100_000, num_training_steps=1_000_000)
for epoch in range(8):
    for i in torch.randperm(800).split(40):
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
