"""Causal linear attention with elu + 1, decoding text of brackets."""

import torch
import torch.nn.functional as F
from torch import nn


class Linear(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = F.elu(self.q(x)) + 1, F.elu(self.k(x)) + 1, self.v(x)
        state = torch.einsum("bnd,bne->bnde", k, v).cumsum(1)
        total = (q * k.cumsum(1)).sum(-1, keepdim=True)
        return self.o(torch.einsum("bnd,bnde->bne", q, state) / total)


class Model(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(4, dim)
        self.place = nn.Embedding(24, dim)
        self.mix, self.norm, self.norm2 = Linear(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim))
        self.out = nn.Linear(dim, 4)

    def forward(self, x):
        h = self.embed(x) + self.place.weight[: x.shape[1]]
        h = h + self.mix(self.norm(h))
        return self.out(h + self.mlp(self.norm2(h)))


def brackets(n, length=24):
    rows = []
    for _ in range(n):
        row, stack = [], []
        while len(row) <= length:
            if stack and torch.rand(()) < 0.5:
                row.append(stack.pop() + 2)
            else:
                stack.append(int(torch.randint(2, ())))
                row.append(stack[-1])
        rows.append(row)
    return torch.tensor(rows)


data = brackets(300)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(60):
    text = data[torch.randint(300, (16,))]
    loss = F.cross_entropy(model(text[:, :-1]).mT, text[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
