"""A tagger with a bidirectional recurrent net; the net is time-major, the labels are not."""

import torch
import torch.nn as nn
import torch.optim as optim


class Tagger(nn.Module):
    def __init__(self, vocab, tags, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, bidirectional=True)
        self.classify = nn.Linear(2 * dim, tags)

    def forward(self, sentences):
        hidden, _ = self.rnn(self.embed(sentences.t()))
        return self.classify(hidden)


def sentences(n):
    words = torch.randint(0, 40, (n, 9))
    tags = words % 5
    return words, tags


tagger = Tagger(40, 5)
optimizer = optim.Adam(tagger.parameters(), lr=5e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(60):
    words, tags = sentences(32)
    tagger.zero_grad()
    scores = tagger(words)
    loss = criterion(scores.reshape(-1, 5), tags.reshape(-1))
    loss.backward()
    optimizer.step()
