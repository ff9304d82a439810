"""A discrete bottleneck by Gumbel's trick at a low temperature."""

import torch
import torch.nn.functional as F
from torch import nn


class Discrete(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.code, self.decode = (
            nn.Linear(16, 24),
            nn.Parameter(torch.randn(24, 12) * 0.3),
            nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16)),
        )

    def forward(self, x):
        w = F.gumbel_softmax(self.encode(x), tau=0.3)
        return self.decode((w.unsqueeze(-1) * self.code).sum(1))


things = torch.randn(8, 16)
net = Discrete()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(100):
    x = things[torch.randint(8, (48,))] + 0.1 * torch.randn(48, 16)
    loss = F.mse_loss(net(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
