"""A curve in one variable, with the input normalised."""

import torch
from torch import nn

net = nn.Sequential(
    nn.LayerNorm(1), nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(150):
    x = 6 * torch.rand(128, 1) - 3
    y = (2 * x).sin() + 0.05 * torch.randn_like(x)
    loss = nn.functional.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(loss.item())
