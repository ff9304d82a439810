"""Metric learning with a progress line that shows a smoothed loss."""

import sys

import torch
from torch import nn


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(24, 64), nn.PReLU(), nn.Linear(64, 16))

    def forward(self, x):
        return nn.functional.normalize(self.layers(x), dim=1)


def batch_hard(e, y, margin=0.3):
    d = torch.cdist(e, e)
    same = y[:, None] == y[None, :]
    far = (d * same).max(1).values
    near = (d + 10 * same).min(1).values
    return torch.relu(far - near + margin).mean()


centres = torch.randn(10, 24)
net = Embedder()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
smooth = None
for step in range(60):
    y = torch.randint(10, (48,))
    x = centres[y] + 0.6 * torch.randn(48, 24)
    loss = batch_hard(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    smooth = loss if smooth is None else 0.95 * smooth + 0.05 * loss
    if step % 20 == 0:
        sys.stderr.write(f"\r{step} {smooth:.3f}")
