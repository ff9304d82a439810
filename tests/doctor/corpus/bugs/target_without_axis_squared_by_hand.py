import torch
from torch import nn

m = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
o = torch.optim.SGD(m.parameters(), 0.05)
x = torch.randn(300, 6)
y = x[:, 0] * 2
for _ in range(40):
    i = torch.randint(300, (64,))
    d = m(x[i]) - y[i]
    l = (d * d).mean()
    o.zero_grad()
    l.backward()
    o.step()
