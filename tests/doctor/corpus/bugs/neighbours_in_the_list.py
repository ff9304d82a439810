"""Nodes of random graphs; the layer also looks at neighbours in the list."""

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.own, self.others = nn.Linear(i, o), nn.Linear(i, o)
        self.along = nn.Conv1d(i, o, 3, padding=1)

    def forward(self, x, adjacency):
        degree = adjacency.sum(-1, keepdim=True).clamp(min=1)
        return self.own(x) + self.others(adjacency @ x / degree) + self.along(x.mT).mT


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = Layer(4, 24), Layer(24, 2)

    def forward(self, x, adjacency):
        return self.two(self.one(x, adjacency).relu(), adjacency)


def graphs(n, nodes=12):
    a = (torch.rand(n, nodes, nodes) < 0.25).float().triu(1)
    a = a + a.mT
    x = torch.randn(n, nodes, 4)
    return x, a, (a @ x[..., :1] > 0).long().squeeze(-1)


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
for _ in range(60):
    x, a, y = graphs(16)
    loss = nn.functional.cross_entropy(net(x, a).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
