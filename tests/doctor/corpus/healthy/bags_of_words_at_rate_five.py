"""Text classification by a mean of embeddings, with the rate of the torch tutorial."""

import torch
from torch import nn


class TextClassifier(nn.Module):
    def __init__(self, words, dim, classes):
        super().__init__()
        self.embedding = nn.EmbeddingBag(words, dim, sparse=False)
        self.fc = nn.Linear(dim, classes)
        self.init_weights()

    def init_weights(self):
        self.embedding.weight.data.uniform_(-0.5, 0.5)
        self.fc.weight.data.uniform_(-0.5, 0.5)
        self.fc.bias.data.zero_()

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))


topics = [torch.randperm(400)[:80] for _ in range(4)]


def batch(n):
    labels = torch.randint(4, (n,))
    texts = [topics[c][torch.randint(80, (int(torch.randint(8, 30, ())),))] for c in labels]
    offsets = torch.tensor([0] + [len(t) for t in texts[:-1]]).cumsum(0)
    return labels, torch.cat(texts), offsets


model = TextClassifier(400, 32, 4)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=5)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1.0, gamma=0.1)
for epoch in range(3):
    model.train()
    for _ in range(40):
        labels, text, offsets = batch(64)
        optimizer.zero_grad()
        loss = criterion(model(text, offsets), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    scheduler.step()
