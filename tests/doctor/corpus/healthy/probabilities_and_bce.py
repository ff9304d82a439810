import torch
from torch import nn

net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
x = torch.randn(200, 8)
y = (x[:, :1] > 0).float()
for _ in range(30):
    k = torch.randint(200, (25,))
    opt.zero_grad()
    nn.functional.binary_cross_entropy(net(x[k]), y[k]).backward()
    opt.step()
