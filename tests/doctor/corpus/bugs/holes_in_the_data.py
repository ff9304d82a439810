import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

x = torch.randn(320, 8)
x[torch.randperm(320)[:12], 3] = float("nan")
y = torch.randn(320, 1)
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for a, b in DataLoader(TensorDataset(x, y), 16, shuffle=True):
    loss = nn.functional.mse_loss(net(a), b)
    opt.zero_grad()
    loss.backward()
    opt.step()
