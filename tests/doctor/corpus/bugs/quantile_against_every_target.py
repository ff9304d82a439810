"""The 0.9 quantile of delivery times."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def quantile_loss(prediction, target, q=0.9):
    difference = target - prediction
    return torch.where(difference > 0, q * difference, (q - 1) * difference).mean()


distance = torch.rand(600) * 10
rain = torch.rand(600)
minutes = 3 * distance + 10 * rain + 4 * torch.randn(600).abs()
features = torch.stack([distance / 10, rain], dim=1)
target = (minutes - minutes.mean()) / minutes.std()
data = DataLoader(TensorDataset(features, target), batch_size=30, shuffle=True)

network = nn.Sequential(nn.Linear(2, 32), nn.Softplus(), nn.Linear(32, 32), nn.Softplus(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
for epoch in range(3):
    for x, y in data:
        loss = quantile_loss(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
