"""A prefix may be read in both directions; only what follows is scored."""

import torch
import torch.nn.functional as F
from torch import nn

PREFIX = 4


class Model(nn.Module):
    def __init__(self, words=20, dim=32, length=16):
        super().__init__()
        self.embed, self.place = nn.Embedding(words, dim), nn.Embedding(length, dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, words)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        mask[:, :PREFIX] = True
        self.register_buffer("mask", mask)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        n = x.shape[1]
        h = self.embed(x) + self.place.weight[:n]
        q, k, v = self.qkv(self.norm(h)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask[:n, :n])
        return self.out(h + a.transpose(1, 2).flatten(2))


rule = torch.randperm(20)
model = Model()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(70):
    words = [torch.randint(20, (16,))]
    for _ in range(15):
        words.append(torch.where(torch.rand(16) < 0.2, torch.randint(20, (16,)), rule[words[-1]]))
    text = torch.stack(words, 1)
    logits = model(text[:, :-1])
    loss = F.cross_entropy(logits[:, PREFIX - 1 :].flatten(0, 1), text[:, PREFIX:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
