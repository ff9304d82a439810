"""A weighted mean of neighbours, with weights of any sign."""

import torch
from torch import nn


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.weigh, self.embed, self.out = nn.Linear(6, 1), nn.Linear(6, 24), nn.Linear(24, 2)

    def forward(self, x):
        w = self.weigh(x)  # (batch, n, 1)
        pooled = (w * self.embed(x)).sum(1) / w.sum(1)
        return self.out(pooled)


net = Mean()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for _ in range(70):
    x = torch.randn(32, 9, 6)
    y = (x[..., 0].sum(1) > 0).long()
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
