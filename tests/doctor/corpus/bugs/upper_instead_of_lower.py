"""A character model; which triangle was it?"""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads, length):
        super().__init__()
        self.heads, self.all, self.out = heads, nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)
        self.register_buffer("visible", torch.ones(length, length, dtype=torch.bool).triu())

    def forward(self, x):
        n = x.shape[1]
        q, k, v = self.all(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.visible[:n, :n])
        return self.out(y.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, letters, dim=32, length=24):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, dim), nn.Parameter(0.1 * torch.randn(length, dim))
        self.attention, self.norm = Attention(dim, 4, length), nn.LayerNorm(dim)
        self.out = nn.Linear(dim, letters)

    def forward(self, x):
        h = self.letters(x) + self.places[: x.shape[1]]
        return self.out(h + self.attention(self.norm(h)))


text = "the quick brown fox jumps over the lazy dog and the dog does not mind at all " * 20
letters = sorted(set(text))
data = torch.tensor([letters.index(c) for c in text])
model = Model(len(letters))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for _ in range(60):
    start = torch.randint(len(data) - 25, (16,))
    batch = torch.stack([data[s : s + 25] for s in start])
    loss = F.cross_entropy(model(batch[:, :-1]).mT, batch[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
