"""Time first, states carried between chunks and cut there."""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.LSTM(2, 24, num_layers=2), nn.Linear(24, 2)

    def forward(self, x, state=None):
        h, state = self.rnn(x, state)
        return self.out(h), state


t = torch.arange(2000.0)
series = torch.stack([torch.stack([(t / p).sin(), (t / p).cos()], -1) for p in torch.linspace(5, 15, 12)], 1)
series = series + 0.02 * torch.randn_like(series)
net, state = Net(), None
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for start in range(0, 1600, 20):
    chunk = series[start : start + 21]
    out, state = net(chunk[:-1], state)
    state = tuple(s.detach() for s in state)
    loss = nn.functional.mse_loss(out, chunk[1:])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
