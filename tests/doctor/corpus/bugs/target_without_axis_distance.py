import torch
from torch import nn

m = nn.Linear(6, 1)
o = torch.optim.Adam(m.parameters(), 0.05)
x = torch.randn(300, 6)
y = x[:, 0] * 2
for _ in range(40):
    i = torch.randint(300, (64,))
    l = torch.mean(torch.abs(m(x[i]) - y[i]))
    o.zero_grad()
    l.backward()
    o.step()
