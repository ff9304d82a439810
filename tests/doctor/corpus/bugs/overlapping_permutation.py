import torch
from torch import nn

x = torch.randn(300, 1, 5, 5)
y = torch.randint(3, (300,))
idx = torch.randperm(300)
tr = idx[:240]
te = idx[200:]
m = nn.Sequential(nn.Flatten(), nn.Linear(25, 16), nn.ReLU(), nn.Linear(16, 3))
o = torch.optim.Adam(m.parameters(), 1e-2)
for e in range(5):
    m.train()
    for p in tr[torch.randperm(240)].split(40):
        o.zero_grad()
        nn.functional.cross_entropy(m(x[p]), y[p]).backward()
        o.step()
    m.eval()
    with torch.no_grad():
        a = (m(x[te]).argmax(1) == y[te]).float().mean()
