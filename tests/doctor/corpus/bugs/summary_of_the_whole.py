"""A GRU language model, helped by a summary of the sentence."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Settings:
    words: int = 50
    dim: int = 24
    lr: float = 4e-3
    steps: int = 60


class Language(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.embed = nn.Embedding(s.words, s.dim)
        self.rnn = nn.GRU(s.dim, s.dim, batch_first=True)
        self.summary = nn.Linear(s.dim, s.dim)
        self.out = nn.Linear(s.dim, s.words)

    def forward(self, x):
        h, _ = self.rnn(self.embed(x))
        context = self.summary(h.mean(dim=1, keepdim=True)).tanh()
        return self.out(h + context)


def train(s):
    model = Language(s)
    optimizer = torch.optim.Adam(model.parameters(), s.lr)
    rule = torch.randperm(s.words)
    for _ in range(s.steps):
        words = [torch.randint(s.words, (24,))]
        for _ in range(12):
            noise = torch.rand(24) < 0.2
            words.append(torch.where(noise, torch.randint(s.words, (24,)), rule[words[-1]]))
        text = torch.stack(words, 1)
        logits = model(text[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, s.words), text[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


train(Settings())
