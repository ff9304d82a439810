"""Bags pooled by gated attention, temperature one."""

import torch
from torch import nn


class Bag(nn.Module):
    def __init__(self, dim=10, hidden=24):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU())
        self.v, self.u, self.w = nn.Linear(hidden, 16), nn.Linear(hidden, 16), nn.Linear(16, 1)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h = self.embed(x)
        a = self.w(self.v(h).tanh() * self.u(h).sigmoid()).squeeze(-1).softmax(1)
        return self.out((a.unsqueeze(-1) * h).sum(1)).squeeze(-1)


net = Bag()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
mark = torch.randn(10)
for _ in range(90):
    y = torch.randint(2, (24,)).float()
    x = torch.randn(24, 12, 10)
    x[:, 3] += 1.5 * mark * y[:, None]
    loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
