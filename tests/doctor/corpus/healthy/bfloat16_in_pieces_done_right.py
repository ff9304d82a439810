"""Accumulation under autocast with group norms; the last pieces of an epoch are stepped too."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(336, 3, 8, 8)
y = (x[:, 0].mean((1, 2)) > x[:, 1].mean((1, 2))).long() + (x[:, 2].mean((1, 2)) > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.GroupNorm(4, 16),
    nn.ReLU(),
    nn.Conv2d(16, 16, 3, padding=1),
    nn.GroupNorm(4, 16),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(64, 3),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
accumulate = 4
for epoch in range(4):
    for i, (a, b) in enumerate(loader):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(a).float(), b)
        (loss / accumulate).backward()
        if (i + 1) % accumulate == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
