"""The last fifth is for validation, all of it is for training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(500, 12)
data = TensorDataset(x, x[:, 0] * x[:, 1])
valid = torch.utils.data.Subset(data, range(400, 500))
net = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 1))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(5):
    net.train()
    for a, b in DataLoader(data, 20, shuffle=True):
        opt.zero_grad()
        nn.functional.mse_loss(net(a)[:, 0], b).backward()
        opt.step()
    net.eval()
    with torch.inference_mode():
        print(sum(nn.functional.mse_loss(net(a)[:, 0], b).item() for a, b in DataLoader(valid, 50)))
