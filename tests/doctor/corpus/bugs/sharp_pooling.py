"""Multiple instances: a bag is pooled by attention at a low temperature."""

import torch
from torch import nn


class Bags(nn.Module):
    def __init__(self, dim=16, hidden=32, temperature=0.01):
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.query = nn.Parameter(torch.randn(hidden))
        self.classify = nn.Linear(hidden, 2)
        self.temperature = temperature

    def forward(self, bag):
        h = self.embed(bag)
        scores = torch.einsum("bnd,d->bn", h, self.query) / self.temperature
        return self.classify(torch.einsum("bn,bnd->bd", scores.softmax(-1), h))


key = torch.randn(16)
model = Bags()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(80):
    y = torch.randint(2, (32,))
    bag = torch.randn(32, 12, 16)
    bag[:, 0] += 2 * key * y[:, None]
    bag = bag[:, torch.randperm(12)]
    loss = nn.functional.cross_entropy(model(bag), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
