"""Both last states of a bidirectional GRU, taken properly."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16, padding_idx=0)
        self.rnn = nn.GRU(16, 24, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(48, 2)

    def forward(self, text, lengths):
        packed = pack_padded_sequence(self.embed(text), lengths, batch_first=True, enforce_sorted=False)
        _, h = self.rnn(packed)
        return self.out(self.drop(h.transpose(0, 1).flatten(1)))


score = torch.randn(50)


def collate(n):
    texts = [torch.randint(1, 50, (int(torch.randint(3, 12, ())),)) for _ in range(n)]
    labels = torch.tensor([int(score[t].sum() > 0) for t in texts])
    return pad_sequence(texts, batch_first=True), torch.tensor([len(t) for t in texts]), labels


model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
for step in range(80):
    text, lengths, labels = collate(32)
    loss = nn.functional.cross_entropy(model(text, lengths), labels)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 1.0)
    optimizer.step()
