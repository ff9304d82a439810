import torch
from torch import nn

m = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
o = torch.optim.Adam(m.parameters(), 1e-3)
x = torch.randn(300, 6)
y = (x[:, 0] > 0).long()
for _ in range(30):
    i = torch.randint(300, (32,))
    l = nn.functional.cross_entropy(m(x[i]), y[i])
    o.step()
    o.zero_grad()
    l.backward()
