import torch
from torch import nn

m = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
o = torch.optim.Adam(m.parameters(), 1e-2)
c = torch.rand(64, 1, 12, 12)
for i in range(40):
    x = c[torch.randint(64, (8,))]
    n = x + 0.1 * torch.randn_like(x)
    l = nn.L1Loss()(n - m(n), x)
    l.backward()
    if i % 2:
        for g in o.param_groups:
            for p in g["params"]:
                p.grad.mul_(0.5)
        o.step()
        o.zero_grad()
