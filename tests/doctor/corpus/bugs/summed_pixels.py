"""An autoencoder of small pictures; the error is summed."""

import torch
from torch import nn

basis = torch.randn(5, 64)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 5))
        self.decode = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 64))

    def forward(self, x):
        return self.decode(self.encode(x))


model = Autoencoder()
optimizer = torch.optim.SGD(model.parameters(), lr=2e-3)
for _ in range(100):
    x = torch.randn(128, 5) @ basis
    loss = nn.functional.mse_loss(model(x), x, reduction="sum")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
