"""A training loop that diverges: one line is missing."""

import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(256, 10)
y = torch.sin(x @ torch.randn(10, 1))

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()

for _ in range(400):
    batch = torch.randint(256, (64,))
    loss = criterion(model(x[batch]), y[batch])
    loss.backward()
    optimizer.step()
