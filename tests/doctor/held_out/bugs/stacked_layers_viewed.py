"""A two-layer GRU; both layers' last states go to the head."""

import torch
from torch import nn


class Meter(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        _, state = self.gru(x)
        return self.head(state.reshape(len(x), 32)).squeeze(-1)


net = Meter()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for _ in range(70):
    x = torch.randn(20, 7, 3)
    loss = nn.functional.mse_loss(net(x), x[..., 0].sum(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
