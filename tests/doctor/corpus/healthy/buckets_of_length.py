"""Sentences in buckets of like length; the buckets are drawn at random."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler


class Buckets(Sampler):
    def __init__(self, lengths, size):
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        self.batches = [order[i : i + size] for i in range(0, len(order), size)]

    def __iter__(self):
        random.shuffle(self.batches)
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


parity = torch.randint(2, (30,))
texts = [torch.randint(1, 30, (random.randint(2, 14),)) for _ in range(480)]
items = [(text, int(parity[text].sum() > len(text) / 2)) for text in texts]


def collate(batch):
    texts, labels = zip(*batch)
    return nn.utils.rnn.pad_sequence(texts, batch_first=True), torch.tensor(labels)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 24, padding_idx=0)
        self.conv = nn.Conv1d(24, 32, 3, padding=1)
        self.out = nn.Linear(32, 2)

    def forward(self, x):
        return self.out(self.conv(self.embed(x).mT).relu().amax(-1))


loader = DataLoader(items, batch_sampler=Buckets([len(t) for t in texts], 24), collate_fn=collate)
model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(5):
    for text, label in loader:
        loss = nn.functional.cross_entropy(model(text), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
