"""Queries and keys drawn with unit variance, times a temperature meant for divided scores."""

import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(dim, dim) for _ in range(3))
        for layer in (self.q, self.k):
            nn.init.normal_(layer.weight)

    def forward(self, x):
        scores = torch.einsum("btd,bsd->bts", self.q(x), self.k(x))
        return torch.einsum("bts,bsd->btd", scores.softmax(-1), self.v(x))


class Pointer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attention, self.out = nn.Embedding(400, 32), Attention(32), nn.Linear(32, 16)

    def forward(self, t):
        return self.out(self.attention(self.embed(t)).mean(1))


model = Pointer()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(40):
    tokens = torch.randint(400, (32, 12))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(tokens), tokens[:, 0] % 16).backward()
    optimizer.step()
