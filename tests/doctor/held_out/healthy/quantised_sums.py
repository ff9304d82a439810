"""Weights of several sizes, sums of experts, an auxiliary loss that keeps gates even."""

import torch
from torch import nn


class Experts(nn.Module):
    def __init__(self, n=6):
        super().__init__()
        self.gate = nn.Linear(8, n)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(n)
        )

    def forward(self, x):
        g = self.gate(x).softmax(-1)
        out = torch.stack([e(x) for e in self.experts], 1)  # (batch, n, 1)
        return (g.unsqueeze(-1) * out).sum(1).squeeze(-1), g


net = Experts()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for _ in range(100):
    x = torch.randn(48, 8)
    y = torch.where(x[:, 0] > 0, x[:, 1], -x[:, 2])
    out, g = net(x)
    loss = nn.functional.mse_loss(out, y) + 0.01 * (g.mean(0) * 6 - 1).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
