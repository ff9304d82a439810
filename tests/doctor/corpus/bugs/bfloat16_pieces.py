"""Micro batches under autocast."""

import torch
import torch.nn.functional as F
from torch import nn


class Mixer(nn.Module):
    def __init__(self, tokens=8, dim=24):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.channels = nn.Sequential(nn.Linear(dim, 48), nn.GELU(), nn.Linear(48, dim))
        self.head = nn.Linear(dim, 3)

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.norm2(x))
        return self.head(x.mean(1))


prototypes = torch.randn(3, 8, 24)
model = Mixer()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
micro = 8
for step in range(30):
    optimizer.zero_grad()
    for _ in range(micro):
        y = torch.randint(3, (8,))
        x = prototypes[y] + 1.5 * torch.randn(8, 8, 24)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(x)
        F.cross_entropy(logits.float(), y).backward()
    optimizer.step()
