"""Sentences by a bidirectional LSTM; its last two states side by side."""

import torch
from torch import nn


class Sentiment(nn.Module):
    def __init__(self, vocabulary=60, dim=16, hidden=20, classes=2):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        self.lstm = nn.LSTM(dim, hidden, bidirectional=True, batch_first=True)
        self.classify = nn.Linear(2 * hidden, classes)

    def forward(self, tokens):
        _, (h, _) = self.lstm(self.embedding(tokens))
        return self.classify(h.view(tokens.size(0), -1))


value = torch.randn(60)
model = Sentiment()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(80):
    tokens = torch.randint(60, (32, 9))
    target = (value[tokens].sum(1) > 0).long()
    loss = nn.functional.cross_entropy(model(tokens), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
