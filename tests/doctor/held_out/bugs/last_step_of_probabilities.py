"""An LSTM with a softmax for each time; the last time is scored."""

import torch
from torch import nn


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out, self.softmax = (
            nn.LSTM(4, 24, batch_first=True),
            nn.Linear(24, 4),
            nn.Softmax(dim=-1),
        )

    def forward(self, x):
        return self.softmax(self.out(self.lstm(x)[0]))


net = Last()
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for _ in range(70):
    x = torch.randn(32, 6, 4)
    loss = nn.functional.cross_entropy(net(x)[:, -1], x.sum(1).argmax(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
