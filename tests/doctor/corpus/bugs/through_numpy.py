import torch
from torch import nn


class M(nn.Module):
    def __init__(s):
        super().__init__()
        s.a = nn.Linear(6, 16)
        s.b = nn.Linear(16, 16)
        s.c = nn.Linear(16, 2)

    def forward(s, x):
        h = s.a(x).relu()
        h = torch.tensor(s.b(h).detach().numpy()).relu()
        return s.c(h)


m = M()
o = torch.optim.Adam(m.parameters(), 1e-2)
x = torch.randn(300, 6)
y = (x[:, 0] > 0).long()
for _ in range(30):
    i = torch.randint(300, (32,))
    l = nn.functional.cross_entropy(m(x[i]), y[i])
    o.zero_grad()
    l.backward()
    o.step()
