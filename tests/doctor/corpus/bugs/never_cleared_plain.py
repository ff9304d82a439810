import torch
from torch import nn

x = torch.randn(200, 6)
y = x @ torch.randn(6, 1) + 0.1 * torch.randn(200, 1)
net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
sgd = torch.optim.SGD(net.parameters(), lr=0.01)
for i in range(40):
    pick = torch.randint(200, (32,))
    error = ((net(x[pick]) - y[pick]) ** 2).mean()
    error.backward()
    sgd.step()
