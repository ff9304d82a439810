"""A convolutional language model, padded on both sides."""

import torch
from torch import nn


class ConvLM(nn.Module):
    def __init__(self, words=30, dim=24):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.layers = nn.ModuleList(nn.Conv1d(dim, dim, 3, padding="same", dilation=d) for d in (1, 2))
        self.out = nn.Linear(dim, words)

    def forward(self, x):
        h = self.embed(x).transpose(1, 2)
        for layer in self.layers:
            h = h + layer(h).relu()
        return self.out(h.transpose(1, 2))


rule = torch.randperm(30)
model = ConvLM()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(60):
    words = [torch.randint(30, (16,))]
    for _ in range(14):
        words.append(torch.where(torch.rand(16) < 0.3, torch.randint(30, (16,)), rule[words[-1]]))
    text = torch.stack(words, 1)
    loss = nn.functional.cross_entropy(model(text[:, :-1]).permute(0, 2, 1), text[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
