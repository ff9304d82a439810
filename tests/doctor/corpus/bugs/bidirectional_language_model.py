import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 10)
        self.rnn = nn.GRU(10, 12, batch_first=True, bidirectional=True)
        self.out = nn.Linear(24, 12)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


net = Reader()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
corpus = torch.randint(12, (80, 9))
for epoch in range(4):
    for rows in corpus[torch.randperm(80)].split(16):
        x, y = rows[:, :-1], rows[:, 1:]
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
