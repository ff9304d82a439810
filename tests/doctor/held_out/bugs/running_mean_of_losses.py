"""A progress line with the mean loss so far."""

import torch
from torch import nn


class Progress:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def __call__(self, loss, size):
        self.total = self.total + loss * size
        self.count += size
        return self.total / self.count


net = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
progress = Progress()
for _ in range(80):
    x = torch.randn(32, 8)
    loss = nn.functional.mse_loss(net(x)[:, 0], x.norm(dim=1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    text = f"{float(progress(loss, len(x))):.3f}"
