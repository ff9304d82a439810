"""A compiled model: its inside is not seen, its loop is."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
fast = torch.compile(model, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(256, 8)
y = x[:, :1] * x[:, 1:2]
for step in range(40):
    pick = torch.randint(256, (32,))
    loss = nn.functional.mse_loss(fast(x[pick]), y[pick])
    loss.backward()
    optimizer.step()
