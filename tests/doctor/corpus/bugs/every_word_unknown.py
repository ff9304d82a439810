"""Sentiment of reviews; the vocabulary is in lower case and the reviews are not."""

import random

import torch
from torch import nn

GOOD, BAD, REST = ["good", "great", "fine"], ["bad", "awful", "poor"], ["film", "the", "plot", "was", "a"]
vocabulary = {word: k + 1 for k, word in enumerate(GOOD + BAD + REST)}


def review():
    label = random.randrange(2)
    words = random.choices(REST, k=5) + random.choices(GOOD if label else BAD, k=2)
    return " ".join(words).title(), label


def encode(text):
    return [vocabulary.get(word, 0) for word in text.split()]


reviews = [review() for _ in range(300)]
tokens = torch.tensor([encode(text) for text, _ in reviews])
labels = torch.tensor([label for _, label in reviews])
model = nn.Sequential(
    nn.EmbeddingBag(len(vocabulary) + 1, 16), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)
)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(4):
    for rows in torch.randperm(300).split(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens[rows]), labels[rows])
        loss.backward()
        optimizer.step()
