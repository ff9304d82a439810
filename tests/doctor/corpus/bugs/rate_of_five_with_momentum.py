import torch
from torch import nn

m = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))
o = torch.optim.SGD(m.parameters(), lr=5.0, momentum=0.9)
x = torch.randn(100, 1, 8, 8)
y = torch.randint(3, (100,))
for _ in range(30):
    i = torch.randint(100, (20,))
    l = nn.functional.cross_entropy(m(x[i]), y[i])
    o.zero_grad()
    l.backward()
    o.step()
