"""Uncertainty by dropout that is left on on purpose: thirty passes, then their spread."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(1, 64), nn.Linear(64, 1)

    def forward(self, x):
        return self.b(nn.functional.dropout(self.a(x).tanh(), 0.1, training=True))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=5e-3, weight_decay=1e-5)
for _ in range(120):
    x = 4 * torch.rand(64, 1) - 2
    loss = nn.functional.mse_loss(net(x), (2 * x).sin())
    opt.zero_grad()
    loss.backward()
    opt.step()
net.eval()
with torch.no_grad():
    grid = torch.linspace(-3, 3, 40)[:, None]
    print(torch.stack([net(grid) for _ in range(30)]).std(0).mean())
