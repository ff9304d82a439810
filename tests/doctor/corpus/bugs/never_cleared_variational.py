import torch
import torch.nn as nn


class VAE(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Linear(20, 8)
        s.d = nn.Linear(4, 20)

    def forward(s, x):
        m, l = s.e(x).chunk(2, 1)
        return s.d(m + torch.randn_like(m) * torch.exp(l / 2)), m, l


v = VAE()
o = torch.optim.Adam(v.parameters(), 1e-3)
for e in range(50):
    x = torch.randn(32, 20)
    r, m, l = v(x)
    loss = ((r - x) ** 2).sum(1).mean() + (m**2 + l.exp() - l - 1).sum(1).mean() / 2
    loss.backward()
    o.step()
