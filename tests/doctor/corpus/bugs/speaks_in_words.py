"""A speaker describes a picture in words, a listener guesses it; both are trained together."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Speaker(nn.Module):
    def __init__(self, words=12, length=3):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, words * length))
        self.shape = (length, words)

    def forward(self, picture):
        return self.net(picture).unflatten(1, self.shape).argmax(-1)


class Listener(nn.Module):
    def __init__(self, words=12, length=3):
        super().__init__()
        self.embedding = nn.Embedding(words, 16)
        self.net = nn.Sequential(nn.Linear(16 * length, 40), nn.ReLU(), nn.Linear(40, 5))

    def forward(self, words):
        return self.net(self.embedding(words).flatten(1))


speaker, listener = Speaker(), Listener()
game = nn.ModuleDict({"speaker": speaker, "listener": listener})
optimizer = torch.optim.Adam(game.parameters(), lr=3e-3)
kinds = 2 * torch.randn(5, 10)
for round_ in range(80):
    target = torch.randint(5, (32,))
    picture = kinds[target] + 0.3 * torch.randn(32, 10)
    loss = F.cross_entropy(listener(speaker(picture)), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
