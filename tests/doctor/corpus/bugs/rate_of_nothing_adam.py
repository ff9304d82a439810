import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(256, 6)
y = (x[:, 0] + x[:, 1] > 0).long()
net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-8)
for epoch in range(5):
    for a, b in DataLoader(TensorDataset(x, y), 64, shuffle=True):
        opt.zero_grad()
        nn.functional.cross_entropy(net(a), b).backward()
        opt.step()
