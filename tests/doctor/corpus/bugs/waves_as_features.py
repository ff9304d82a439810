"""Linear attention with random waves for features."""

import torch
from torch import nn


class Waves(nn.Module):
    def __init__(self, dim=24, features=32):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        self.register_buffer("frequencies", torch.randn(dim, features))

    def phi(self, x):
        return torch.sin(x @ self.frequencies)

    def forward(self, x):
        q, k, v = self.phi(self.q(x)), self.phi(self.k(x)), self.v(x)
        top = q @ (k.mT @ v)
        bottom = q @ k.sum(1).unsqueeze(-1)
        return top / bottom


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 24)
        self.attention, self.norm = Waves(), nn.LayerNorm(24)
        self.out = nn.Linear(24, 2)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.out(self.norm(x + self.attention(x)).mean(1))


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(60):
    tokens = torch.randint(30, (32, 14))
    loss = nn.functional.cross_entropy(model(tokens), (tokens[:, 0] > tokens[:, 1]).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
