import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(length, length).tril(1).bool())

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).masked_fill(~self.mask, float("-inf"))
        return x + self.out(scores.softmax(-1) @ v)


net = nn.Sequential(nn.Embedding(15, 24), Block(24, 10), nn.LayerNorm(24), nn.Linear(24, 15))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
data = torch.randint(15, (50, 11))
for step in range(20):
    rows = data[torch.randint(50, (10,))]
    loss = F.cross_entropy(net(rows[:, :-1]).transpose(1, 2), rows[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
