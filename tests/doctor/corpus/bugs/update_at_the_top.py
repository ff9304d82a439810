"""A word-level RNN; the update is at the top of the loop."""

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, words, tags):
        super().__init__()
        self.embed = nn.Embedding(words, 16)
        self.rnn = nn.GRU(16, 24, batch_first=True)
        self.out = nn.Linear(24, tags)

    def forward(self, w):
        return self.out(self.rnn(self.embed(w))[0])


tag_of = torch.randint(5, (40,))
model = Tagger(40, 5)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
loss_function = nn.CrossEntropyLoss()
for iteration in range(60):
    words = torch.randint(40, (16, 10))
    loss = loss_function(model(words).flatten(0, 1), tag_of[words].flatten())
    optimizer.step()
    optimizer.zero_grad()
    loss.backward()
