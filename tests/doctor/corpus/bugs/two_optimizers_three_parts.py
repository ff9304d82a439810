"""Encoder and decoder have an optimizer each."""

import itertools

import torch
from torch import nn


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU())
        self.bridge = nn.Linear(32, 24)
        self.embedding = nn.Embedding(15, 24)
        self.decoder = nn.GRU(24, 24, batch_first=True)
        self.vocabulary = nn.Linear(24, 15)

    def forward(self, picture, text):
        start = self.bridge(self.encoder(picture)).unsqueeze(0)
        return self.vocabulary(self.decoder(self.embedding(text), start)[0])


model = Captioner()
encoder_optimizer = torch.optim.Adam(model.encoder.parameters(), lr=1e-3)
decoder_optimizer = torch.optim.Adam(
    itertools.chain(model.embedding.parameters(), model.decoder.parameters(), model.vocabulary.parameters()),
    lr=4e-3,
)
project = torch.randn(20, 15)
for _ in range(60):
    picture = torch.randn(24, 20)
    text = torch.stack([(picture @ project).topk(6).indices[:, i] for i in range(6)], 1)
    logits = model(picture, text[:, :-1])
    loss = nn.functional.cross_entropy(logits.transpose(1, 2), text[:, 1:])
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    loss.backward()
    encoder_optimizer.step()
    decoder_optimizer.step()
