import torch
from torch import nn

m = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
o = torch.optim.SGD(m.parameters(), 0.1)
x = torch.randn(200, 6) * 100
y = x[:, :1] ** 2
for _ in range(40):
    i = torch.randint(200, (32,))
    o.zero_grad()
    nn.functional.mse_loss(m(x[i]), y[i]).backward()
    o.step()
