"""Reversing sequences with a GRU encoder and decoder, teacher forcing half of the time."""

import random

import torch
from torch import nn, optim

PAD, START, VOCAB = 0, 1, 12


class Encoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, x):
        return self.gru(self.embedding(x))


class Decoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, hidden)
        self.cell = nn.GRUCell(2 * hidden, hidden)
        self.out = nn.Linear(hidden, VOCAB)

    def forward(self, word, state, memory):
        weights = torch.softmax((memory @ state.unsqueeze(-1)).squeeze(-1) / state.shape[-1] ** 0.5, dim=1)
        context = (weights.unsqueeze(-1) * memory).sum(1)
        state = self.cell(torch.cat([self.embedding(word), context], 1), state)
        return self.out(state), state


encoder, decoder = Encoder(48), Decoder(48)
encoder_optimizer = optim.Adam(decoder.parameters(), lr=2e-3)
decoder_optimizer = optim.Adam(decoder.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)


def train_step(source, target):
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()
    memory, state = encoder(source)
    state, word, loss = state[0], torch.full((len(source),), START), 0
    forced = random.random() < 0.5
    for t in range(target.shape[1]):
        logits, state = decoder(word, state, memory)
        loss = loss + criterion(logits, target[:, t])
        word = target[:, t] if forced else logits.argmax(1)
    (loss / target.shape[1]).backward()
    encoder_optimizer.step()
    decoder_optimizer.step()
    return loss.item() / target.shape[1]


for i in range(50):
    source = torch.randint(2, VOCAB, (32, 6))
    value = train_step(source, source.flip(1))
    if i % 10 == 0:
        print(i, value)
