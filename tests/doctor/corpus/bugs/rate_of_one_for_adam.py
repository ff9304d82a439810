import torch
import torch.nn.functional as F
from torch import nn

net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters(), lr=1.0)
x = torch.randn(400, 12)
y = torch.sin(x[:, :1]) + x[:, 1:2]
for step in range(40):
    batch = torch.randint(400, (40,))
    opt.zero_grad()
    F.mse_loss(net(x[batch]), y[batch]).backward()
    opt.step()
