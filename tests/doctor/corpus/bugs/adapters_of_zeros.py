"""Low-rank adapters on a frozen backbone; both factors start at zero."""

import torch
from torch import nn


class Adapter(nn.Module):
    def __init__(self, layer, rank=4):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.zeros(layer.in_features, rank))
        self.up = nn.Parameter(torch.zeros(rank, layer.out_features))

    def forward(self, x):
        return self.layer(x) + x @ self.down @ self.up


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(12, 64), nn.Linear(64, 64), nn.Linear(64, 4)

    def forward(self, x):
        return self.head(torch.relu(self.two(torch.relu(self.one(x)))))


net = Net()
net.one, net.two = Adapter(net.one), Adapter(net.two)
optimizer = torch.optim.AdamW((p for p in net.parameters() if p.requires_grad), lr=2e-3)
rule = torch.randn(12, 4)
for step in range(60):
    x = torch.randn(64, 12)
    loss = nn.functional.cross_entropy(net(x), (x @ rule).argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
