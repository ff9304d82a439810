"""Micro batches of a language model."""

import torch
import torch.nn.functional as F
from torch import nn

MICRO = 4


class LM(nn.Module):
    def __init__(self, words=24, dim=20):
        super().__init__()
        self.e, self.r, self.o = (
            nn.Embedding(words, dim),
            nn.GRU(dim, dim, batch_first=True),
            nn.Linear(dim, words),
        )

    def forward(self, x, y):
        logits = self.o(self.r(self.e(x))[0])
        return F.cross_entropy(logits.flatten(0, 1), y.flatten()) / MICRO


table = torch.randint(24, (24,))
model = LM()
opt = torch.optim.SGD(model.parameters(), lr=1.0)
for step in range(30):
    opt.zero_grad()
    for _ in range(MICRO):
        words = [torch.randint(24, (8,))]
        for _ in range(10):
            words.append(torch.where(torch.rand(8) < 0.1, torch.randint(24, (8,)), table[words[-1]]))
        text = torch.stack(words, 1)
        loss = model(text[:, :-1], text[:, 1:]) / MICRO
        loss.backward()
    opt.step()
