import torch
from torch import nn


class MoE(nn.Module):
    def __init__(s):
        super().__init__()
        s.g = nn.Linear(8, 4)
        s.x = nn.ModuleList(nn.Linear(8, 3) for _ in range(4))

    def forward(s, x):
        w = s.g(x).softmax(-1)
        k = w.argmax(-1)
        out = torch.zeros(len(x), 3)
        for e in range(4):
            r = (k == e).nonzero().squeeze(1)
            if len(r):
                out = out.index_add(0, r, s.x[e](x[r]) * w[r, e : e + 1])
        return out


m = MoE()
o = torch.optim.Adam(m.parameters(), 1e-2)
x = torch.randn(300, 8)
y = x[:, :3].argmax(1)
for _ in range(40):
    i = torch.randint(300, (48,))
    o.zero_grad()
    nn.functional.cross_entropy(m(x[i]), y[i]).backward()
    o.step()
