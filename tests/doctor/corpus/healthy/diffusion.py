import torch
from torch import nn


class Unet(nn.Module):
    def __init__(s):
        super().__init__()
        s.t = nn.Linear(1, 16)
        s.n = nn.Sequential(nn.Linear(2 + 16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(s, x, t):
        return s.n(torch.cat([x, s.t(t)], 1))


m = Unet()
o = torch.optim.Adam(m.parameters(), 1e-3)
d = torch.randn(500, 2) * 0.3 + 1
for _ in range(60):
    x = d[torch.randint(500, (64,))]
    t = torch.rand(64, 1)
    e = torch.randn_like(x)
    l = ((m(x * (1 - t) + e * t, t) - e) ** 2).mean()
    o.zero_grad()
    l.backward()
    o.step()
