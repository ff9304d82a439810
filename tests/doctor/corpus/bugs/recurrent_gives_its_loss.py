import torch
from torch import nn


class Summary(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(6, 24)
        self.out = nn.Linear(24, 3)

    def forward(self, x, labels=None):
        states, _ = self.rnn(x)
        scores = self.out(states[:, -1])
        loss = None if labels is None else nn.functional.cross_entropy(scores, labels)
        return loss, scores


net = Summary()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
x = torch.randn(480, 10, 6)
y = (x.mean((1, 2)) * 6).round().clamp(-1, 1).long() + 1
for _ in range(4):
    for part in torch.randperm(480).split(30):
        loss, _ = net(x[part], labels=y[part])
        opt.zero_grad()
        loss.backward()
        opt.step()
