"""Two towers and a temperature that should be learned."""

import torch
import torch.nn.functional as F
from torch import nn


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16))
        self.right = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, a, b):
        return self.scale.exp() * F.normalize(self.left(a), dim=-1) @ F.normalize(self.right(b), dim=-1).T


towers = Towers()
opt = torch.optim.Adam([{"params": towers.left.parameters()}, {"params": towers.right.parameters()}], lr=2e-3)
mix = torch.randn(12, 8)
for _ in range(80):
    a = torch.randn(32, 12)
    logits = towers(a, a @ mix + 0.1 * torch.randn(32, 8))
    target = torch.arange(32)
    loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
