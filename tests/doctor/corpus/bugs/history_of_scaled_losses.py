import torch
from torch import nn

m = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
o = torch.optim.SGD(m.parameters(), 0.05)
x = torch.randn(300, 6)
y = (x[:, 0] > 0).long()
stats = {"loss": []}
for _ in range(60):
    i = torch.randint(300, (32,))
    out = m(x[i])
    l = nn.functional.cross_entropy(out, y[i])
    o.zero_grad()
    l.backward()
    o.step()
    stats["loss"].append(l * len(i))
