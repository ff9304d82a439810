"""A mixer-like language model: causal mixing over time by a lower-triangular matrix."""

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, LENGTH, WIDTH = 20, 16, 32


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm([LENGTH, WIDTH])
        self.norm2 = nn.LayerNorm(WIDTH)
        self.time = nn.Parameter(torch.randn(LENGTH, LENGTH) / LENGTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)

    def forward(self, x):
        x = x + torch.tril(self.time) @ self.norm1(x)
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.mix = nn.Sequential(Mix(), Mix())
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        return self.head(self.mix(self.embed(tokens)))


def batch(size=32):
    start, stride = torch.randint(VOCAB, (size, 1)), torch.randint(1, 5, (size, 1))
    return (start + stride * torch.arange(LENGTH + 1)) % VOCAB


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(60):
    seq = batch()
    inputs, targets = seq[:, :-1], seq[:, 1:]
    logits = model(inputs)
    loss = F.cross_entropy(logits.transpose(1, 2), targets)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
