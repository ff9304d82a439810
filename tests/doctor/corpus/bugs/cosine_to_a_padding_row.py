"""Retrieval by cosine; some queries are empty."""

import torch
from torch import nn


class Bag(nn.Module):
    def __init__(self, words, dim):
        super().__init__()
        self.embedding = nn.Embedding(words, dim, padding_idx=0)

    def forward(self, tokens):
        total = self.embedding(tokens).sum(1)
        return total / total.norm(dim=1, keepdim=True)


def sample(n):
    topic = torch.randint(1, 10, (n, 1))
    query, document = [(topic - 1) * 10 + torch.randint(1, 11, (n, 5)) for _ in range(2)]
    query[torch.rand(n) < 0.02] = 0
    return query, document


queries, documents = Bag(101, 16), Bag(101, 16)
optimizer = torch.optim.Adam([*queries.parameters(), *documents.parameters()], lr=1e-2)
for step in range(50):
    q, d = sample(32)
    similarity = queries(q) @ documents(d).T / 0.1
    loss = nn.functional.cross_entropy(similarity, torch.arange(32))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
