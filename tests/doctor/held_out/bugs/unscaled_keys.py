"""Graph nodes attend to all others, features as they come: between 0 and 100."""

import torch
from torch import nn


class Attend(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, 16) for _ in range(3))
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        w = torch.softmax(self.q(x) @ self.k(x).transpose(-1, -2), -1)
        return self.out((w @ self.v(x)).mean(1))


net = Attend()
opt = torch.optim.Adam(net.parameters(), lr=1e-4)
for _ in range(60):
    x = 100 * torch.rand(16, 10, 12)
    y = (x[..., 0].mean(1) > 50).long()
    loss = nn.functional.cross_entropy(net(x) / 10, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
