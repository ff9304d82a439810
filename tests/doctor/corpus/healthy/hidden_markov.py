"""A hidden Markov model by gradient: the forward algorithm in logarithms."""

import torch
from torch import nn


class HMM(nn.Module):
    def __init__(self, states, symbols):
        super().__init__()
        self.start = nn.Parameter(torch.randn(states) * 0.1)
        self.move = nn.Parameter(torch.randn(states, states) * 0.1)
        self.emit = nn.Parameter(torch.randn(states, symbols) * 0.1)

    def forward(self, x):
        move, emit = self.move.log_softmax(1), self.emit.log_softmax(1)
        alpha = self.start.log_softmax(0) + emit[:, x[:, 0]].T
        for t in range(1, x.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + move, 1) + emit[:, x[:, t]].T
        return alpha.logsumexp(1)


def sample(n, length=12):
    state = torch.randint(2, (n,))
    out = []
    for _ in range(length):
        out.append(
            torch.where(torch.rand(n) < 0.8, state * 3 + torch.randint(3, (n,)), torch.randint(6, (n,)))
        )
        state = torch.where(torch.rand(n) < 0.1, 1 - state, state)
    return torch.stack(out, 1)


model = HMM(2, 6)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for _ in range(80):
    loss = -model(sample(64)).mean() / 12
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
