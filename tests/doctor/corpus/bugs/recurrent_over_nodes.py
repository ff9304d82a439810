"""Molecule-like graphs given as edges; a recurrent layer reads the nodes in the order they come."""

import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Linear(5, width)
        self.message = nn.Linear(width, width)
        self.read = nn.GRU(width, width)
        self.out = nn.Linear(width, 1)

    def forward(self, x, edge_index):
        h = torch.tanh(self.embed(x))
        source, target = edge_index
        h = h + torch.zeros_like(h).index_add(0, target, torch.tanh(self.message(h))[source])
        h, _ = self.read(h)
        return self.out(h[-1])


def molecule():
    x = torch.randn(10, 5)
    source = torch.randint(10, (24,))
    target = torch.randint(10, (24,))
    return x, torch.stack([source, target]), x[:, 0].mean() * 3


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(40):
    optimizer.zero_grad()
    x, edges, y = molecule()
    loss = (model(x, edges) - y).pow(2).sum()
    loss.backward()
    optimizer.step()
